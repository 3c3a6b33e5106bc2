"""Field errors of what containers ask for: amounts of resources, and claims.

Rules: Kubernetes 1.37, pkg/apis/core/validation/validation.go and pkg/apis/core/v1/helper/helpers.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, FieldError, duplicate, invalid_value, required

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE: Final = "hugepages-"
_NOT_STANDARD: Final = "must be a standard resource for containers"


def problems(resources: JSON, at: str, claims: Sequence[str]) -> list[FieldError]:
    """Problems of the resources of a container; `claims` are the names of the pod's claims."""
    if not resources:
        return []
    return _amount_problems(resources, at) + _use_problems(resources.get("claims") or (), f"{at}.claims", claims)


# what is asked for


def _amount_problems(resources: JSON, at: str) -> list[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found: list[FieldError] = []
    for name in sorted(limits):
        found += _one_problems(name, limits[name], f"{at}.limits")
    for name in sorted(requests):
        found += _one_problems(name, requests[name], f"{at}.requests")
        found += _relation_problems(name, requests[name], limits.get(name), at)
    return found


def _one_problems(name: str, amount: str, at: str) -> list[FieldError]:
    where = f"{at}[{name}]"
    found = _resource_name_problems(name, where)
    quantity = Quantity.parse(amount)
    if quantity.nano < 0:
        found.append(invalid_value(where, amount, "must be greater than or equal to 0"))
    if _is_extended(name) and quantity.nano % 10**9:
        found.append(invalid_value(where, amount, "must be an integer"))
    return found


def _resource_name_problems(name: str, where: str) -> list[FieldError]:
    """Problems of the name of a resource; names of huge pages are not checked further."""
    found: list[FieldError] = []
    standard = name in _STANDARD or name.startswith(_HUGE)
    if wrong := names.qualified_name(name):
        found.append(invalid_value(where, name, wrong))
    elif "/" not in name and not standard:
        found.append(invalid_value(where, name, "must be a standard resource type or fully qualified"))
    if "/" not in name:
        return found if standard else [*found, invalid_value(where, name, _NOT_STANDARD)]
    if not _is_native(name) and not _is_extended(name):
        found.append(invalid_value(where, name, "doesn't follow extended resource name standard"))
    return found


def _relation_problems(name: str, amount: str, limit: str | None, at: str) -> list[FieldError]:
    """Problems of a request and its limit; extended resources cannot be overcommitted."""
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


def _use_problems(uses: Sequence[JSON], at: str, claims: Sequence[str]) -> list[FieldError]:
    """A claim is used as a whole, once, or by requests."""
    found: list[FieldError] = []
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


def _repeated(name: str, request: str, where: str, seen: set[str]) -> list[FieldError]:
    if name in seen:
        return [duplicate(where, name)]
    found, key = [], name
    if request:
        key = f"{name}/{request}"
        if wrong := names.dns_label(request):
            found.append(invalid_value(f"{where}.request", request, wrong))
    if key in seen:
        found.append(duplicate(where, key))
    elif not request and any(other.partition("/")[0] == name for other in seen):
        found.append(duplicate(where, name))
    seen.add(key)
    return found


def _not_found(name: str, where: str, claims: Sequence[str]) -> FieldError:
    listed = f": {', '.join(sorted(set(claims)))}" if claims else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
    return FieldError(where, "FieldValueNotFound", f'Not found: "{name}": {detail}')
