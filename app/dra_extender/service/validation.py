"""Values of settings: their types, their checks, and combinations that cannot work.

`check` promises: a combination that cannot work, an address that anybody can reach without protection, and replicas
that cannot forward calls to each other are errors that name the setting to change.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Protocol

from dra_extender.scheduling.config import PreemptionMode


class Checked(Protocol):
    """The settings that depend on each other."""

    listen: str
    insight_listen: str
    insight_authorization: bool
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    allowed_clients: str
    allow_plain_http: bool
    allow_any_client: bool
    leader_election: bool
    advertise: str
    peer_name: str
    advise_only: bool
    preemption: PreemptionMode
    shutdown_grace: float
    shutdown_linger: float
    lease_duration: float
    renew_deadline: float
    retry_period: float


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6]:port" or ":port" (all addresses). Raises ValueError."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)


def host_and_port(host: str, port: int) -> str:
    """The form in a URL of "host", "v6" or "host:port"; `port` is the default."""
    try:
        if ipaddress.ip_address(host).version == 6:
            return f"[{host}]:{port}"
    except ValueError:
        if ":" in host:
            return host
    return f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """True when only this machine can reach the address."""
    host = split_address(address)[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def valid_address(address: str) -> str:
    """The address, which may be empty. Raises ValueError."""
    if address:
        split_address(address)
    return address


def names_in(setting: str) -> frozenset[str]:
    """The names that a setting lists, comma separated."""
    return frozenset(filter(None, (name.strip() for name in setting.split(","))))


def check(settings: Checked) -> None:
    """Raises ValueError for settings that cannot be used together."""
    for broken, problem in (
        (bool(settings.tls_cert) != bool(settings.tls_key), "tls_cert and tls_key belong together: set both or none"),
        (settings.tls_client_ca and not settings.tls_cert, "tls_client_ca needs tls_cert and tls_key"),
        (
            settings.allowed_clients and not names_in(settings.allowed_clients),
            "allowed_clients contains no name: leave it empty to allow every client of tls_client_ca",
        ),
        (
            names_in(settings.allowed_clients) and not settings.tls_client_ca,
            "allowed_clients needs tls_client_ca: without it clients show no certificate",
        ),
        (
            settings.preemption == "on" and settings.advise_only,
            "preemption on needs a service that binds: with advise_only it can be advise or off",
        ),
        (settings.shutdown_linger >= settings.shutdown_grace, "shutdown_grace must exceed shutdown_linger"),
        (
            not settings.lease_duration > settings.renew_deadline > settings.retry_period,
            "lease_duration must exceed renew_deadline, which must exceed retry_period",
        ),
        (
            settings.advertise and not settings.leader_election,
            "advertise needs leader_election: without it there is no leader to forward calls to",
        ),
        (
            settings.advertise and settings.tls_cert and not (settings.tls_client_ca and settings.peer_name),
            "advertise with tls_cert needs tls_client_ca and peer_name: replicas check each other's certificates",
        ),
    ):
        if broken:
            raise ValueError(problem)
    _check_exposure(settings)


def _check_exposure(settings: Checked) -> None:
    """Raises ValueError when other machines could call the verbs or read tokens, and no setting allows that."""
    insight = settings.insight_authorization and settings.insight_listen
    if insight and not is_loopback(insight) and not settings.tls_cert and not settings.allow_plain_http:
        raise ValueError(
            f"insight_listen {insight} is reachable from outside and has no TLS for the tokens of "
            "insight_authorization: set tls_cert and tls_key, or allow_plain_http if something else protects it"
        )
    if is_loopback(settings.listen):
        return
    if not settings.tls_cert and not settings.allow_plain_http:
        raise ValueError(
            f"listen {settings.listen} is reachable from outside and has no TLS: set tls_cert, tls_key and "
            "tls_client_ca, or allow_plain_http if something else protects it"
        )
    if settings.tls_cert and not settings.tls_client_ca and not settings.allow_any_client:
        raise ValueError(
            f"listen {settings.listen} is reachable from outside and asks clients for no certificate: set "
            "tls_client_ca, or allow_any_client if something else protects it"
        )
