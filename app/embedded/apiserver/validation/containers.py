"""Field errors of containers: what they are called, run, use and ask for.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go and pkg/apis/core/v1/helper/helpers.go. Ports, probes,
variables and security are not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from app.api.quantity import Quantity
from app.embedded.apiserver import names
from app.embedded.apiserver.statuses import JSON, Problem, duplicate, forbidden, invalid_value, required
from app.embedded.apiserver.validation.parts import required_name_problems

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE: Final = "hugepages-"


def problems(container: JSON, at: str, claims: Sequence[str], volumes: Collection[str]) -> list[Problem]:
    """Of a container of a pod whose claims and volumes are called so."""
    found = required_name_problems(container.get("name"), f"{at}.name", names.dns_label)
    if not container.get("image"):
        found.append(required(f"{at}.image"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        found += _mount_problems(mount, f"{at}.volumeMounts[{index}]", volumes)
    resources = container.get("resources", {})
    found += _amount_problems(resources, f"{at}.resources")
    return found + _use_problems(resources.get("claims") or (), f"{at}.resources.claims", claims)


def _mount_problems(mount: JSON, at: str, volumes: Collection[str]) -> list[Problem]:
    name = mount.get("name", "")
    if not name:
        found = [required(f"{at}.name")]
    else:
        found = [] if name in volumes else [Problem(f"{at}.name", "FieldValueNotFound", f'Not found: "{name}"')]
    return found if mount.get("mountPath") else [*found, required(f"{at}.mountPath")]


# what is asked for


def _amount_problems(resources: JSON, at: str) -> list[Problem]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found = [problem for name in sorted(limits) for problem in _one_problems(name, limits[name], f"{at}.limits")]
    for name in sorted(requests):
        found += _one_problems(name, requests[name], f"{at}.requests")
        found += _relation_problems(name, requests[name], limits.get(name), at)
    asked = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in asked) and not asked & {"cpu", "memory"}:
        found.append(forbidden(at, "HugePages require cpu or memory"))
    return found


def _one_problems(name: str, amount: str, at: str) -> list[Problem]:
    where = f"{at}[{name}]"
    found = _resource_name_problems(name, where)
    quantity = Quantity.parse(amount)
    if quantity.nano < 0:
        found.append(invalid_value(where, amount, "must be greater than or equal to 0"))
    if _is_extended(name) and quantity.nano % 10**9:
        found.append(invalid_value(where, amount, "must be an integer"))
    return found


def _resource_name_problems(name: str, where: str) -> list[Problem]:
    wrong = names.qualified_name(name)
    found = [invalid_value(where, name, wrong)] if wrong else []
    if not found and "/" not in name and name not in _STANDARD and not name.startswith(_HUGE):
        details = ("must be a standard resource type or fully qualified", "must be a standard resource for containers")
        return [invalid_value(where, name, detail) for detail in details]
    if not _is_native(name) and not _is_extended(name):
        found.append(invalid_value(where, name, "doesn't follow extended resource name standard"))
    return found


def _relation_problems(name: str, amount: str, limit: str | None, at: str) -> list[Problem]:
    """Of a request beside its limit; a node has no more of extended resources than it gives away."""
    divisible = _is_native(name) and not name.startswith(_HUGE)
    if limit is None:
        detail = "Limit must be set for non overcommitable resources"
        return [] if divisible else [required(f"{at}.limits", detail)]
    asked, most = Quantity.parse(amount).nano, Quantity.parse(limit).nano
    if not divisible and asked != most:
        return [invalid_value(f"{at}.requests", amount, f"must be equal to {name} limit of {limit}")]
    if asked > most:
        return [invalid_value(f"{at}.requests", amount, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    return not _is_native(name) and not name.startswith("requests.") and not names.qualified_name(f"requests.{name}")


# what is used


def _use_problems(uses: Sequence[JSON], at: str, claims: Sequence[str]) -> list[Problem]:
    """A claim is used as a whole, once, or by requests."""
    found: list[Problem] = []
    seen: set[str] = set()
    for index, use in enumerate(uses):
        where, name, request = f"{at}[{index}]", use.get("name", ""), use.get("request", "")
        if not name:
            found.append(required(where))
            continue
        found += _repeated(name, request, where, seen)
        if name not in claims:
            found.append(_not_found(name, where, claims))
    return found


def _repeated(name: str, request: str, where: str, seen: set[str]) -> list[Problem]:
    if name in seen:
        return [duplicate(where, name)]
    found, key = [], name
    if request:
        key = f"{name}/{request}"
        if wrong := names.dns_label(request):
            found.append(invalid_value(f"{where}.request", request, wrong))
    if key in seen:
        found.append(duplicate(where, key))
    elif not request:
        found += [duplicate(where, name) for other in seen if other.partition("/")[0] == name]
    seen.add(key)
    return found


def _not_found(name: str, where: str, claims: Sequence[str]) -> Problem:
    listed = f": {', '.join(sorted(set(claims)))}" if claims else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
    return Problem(where, "FieldValueNotFound", f'Not found: "{name}": {detail}')
