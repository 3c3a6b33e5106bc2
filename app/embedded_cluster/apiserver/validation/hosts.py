"""Field errors of what a pod is called in its network, and of how it finds others there.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required, too_long
from embedded_cluster.apiserver.validation.parts import name_problems

_MOST_SERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_LONGEST_SEARCHES: Final = 2048
_LONGEST_HOST: Final = 64


def dns_problems(spec: JSON, at: str) -> list[Problem]:
    """Of `dnsConfig`, which a pod without a DNS policy must have."""
    config = spec.get("dnsConfig")
    if spec["dnsPolicy"] == "None":
        if config is None:
            return [required(at, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{at}.nameservers", detail)]
    return [] if config is None else _config_problems(config, at)


def _config_problems(config: JSON, at: str) -> list[Problem]:
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    found: list[Problem] = []
    if len(servers) > _MOST_SERVERS:
        detail = f"must not have more than {_MOST_SERVERS} nameservers"
        found.append(invalid_value(f"{at}.nameservers", servers, detail))
    for index, server in enumerate(servers):
        found += name_problems(server, f"{at}.nameservers[{index}]", names.ip_address)
    if len(searches) > _MOST_SEARCHES:
        detail = f"must not have more than {_MOST_SEARCHES} search paths"
        found.append(invalid_value(f"{at}.searches", searches, detail))
    if len(" ".join(searches)) > _LONGEST_SEARCHES:
        detail = f"must not have more than {_LONGEST_SEARCHES} characters (including spaces) in the search list"
        found.append(invalid_value(f"{at}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            found += name_problems(search.removesuffix("."), f"{at}.searches[{index}]", names.dns_search)
    return found + [
        required(f"{at}.options[{index}]", "must not be empty")
        for index, option in enumerate(config.get("options") or ())
        if not option.get("name")
    ]


def alias_problems(aliases: Iterable[JSON], at: str) -> list[Problem]:
    """Of `hostAliases`."""
    found: list[Problem] = []
    for index, alias in enumerate(aliases):
        found += name_problems(alias.get("ip"), f"{at}[{index}].ip", names.ip_address)
        for number, host in enumerate(alias.get("hostnames") or ()):
            found += name_problems(host, f"{at}[{index}].hostnames[{number}]", names.dns_subdomain)
    return found


def override_problems(spec: JSON, at: str) -> list[Problem]:
    """Of a host name that replaces the pod's own."""
    name = spec.get("hostnameOverride")
    if name is None:
        return []
    found: list[Problem] = []
    if spec.get("setHostnameAsFQDN"):
        found.append(forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        found.append(forbidden(at, "may not be specified when hostNetwork is true"))
    if len(name) > _LONGEST_HOST:
        found.append(too_long(at, _LONGEST_HOST))
    return found + name_problems(name, at, names.dns_subdomain)
