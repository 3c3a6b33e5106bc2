"""Field errors of what containers ask for: amounts of resources, and claims.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go and pkg/apis/core/v1/helper/helpers.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    duplicate,
    forbidden,
    invalid_value,
    required,
)

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE: Final = "hugepages-"
_COUNTED: Final = frozenset(
    (
        *(f"{part}.{name}" for part in ("requests", "limits") for name in _STANDARD),
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    )
)
"""Short names of what quotas count and containers cannot ask for."""


def problems(resources: JSON, at: str, claims: Sequence[str]) -> list[FieldError]:
    """Of the resources of a container of a pod whose claims are called so."""
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
    asked = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in asked) and not asked & {"cpu", "memory"}:
        found.append(forbidden(at, "HugePages require cpu or memory"))
    return found


def _one_problems(name: str, amount: str, at: str) -> list[FieldError]:
    where = f"{at}[{name}]"
    found = _resource_name_problems(name, where)
    quantity = Quantity.parse(amount)
    if quantity.nano < 0:
        found.append(invalid_value(where, amount, "must be greater than or equal to 0"))
    if _is_extended(name) and quantity.nano % 10**9:
        found.append(invalid_value(where, amount, "must be an integer"))
    if name.startswith(_HUGE) and not _is_of_pages(quantity, name.removeprefix(_HUGE)):
        found.append(invalid_value(where, amount, f"{amount} is not positive integer multiple of {name}"))
    return found


def _is_of_pages(quantity: Quantity, size: str) -> bool:
    """True for a whole number of pages of this size."""
    try:
        page = Quantity.parse(size).nano
    except ValueError:
        return False
    return page > 0 and page % 10**9 == 0 and quantity.nano % page == 0


def _resource_name_problems(name: str, where: str) -> list[FieldError]:
    found = _form_problems(name, where)
    if "/" not in name:
        if name not in _STANDARD and not name.startswith(_HUGE):
            found.append(invalid_value(where, name, "must be a standard resource for containers"))
    elif not _is_native(name) and not _is_extended(name):
        found.append(invalid_value(where, name, "doesn't follow extended resource name standard"))
    return found


def _form_problems(name: str, where: str) -> list[FieldError]:
    """Of the name of any resource."""
    if wrong := names.qualified_name(name):
        return [invalid_value(where, name, wrong)]
    if "/" in name or name in _STANDARD or name in _COUNTED or name.startswith((_HUGE, f"requests.{_HUGE}")):
        return []
    return [invalid_value(where, name, "must be a standard resource type or fully qualified")]


def _relation_problems(name: str, amount: str, limit: str | None, at: str) -> list[FieldError]:
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
    elif not request:
        found += [duplicate(where, name) for other in seen if other.partition("/")[0] == name]
    seen.add(key)
    return found


def _not_found(name: str, where: str, claims: Sequence[str]) -> FieldError:
    listed = f": {', '.join(sorted(set(claims)))}" if claims else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
    return FieldError(where, "FieldValueNotFound", f'Not found: "{name}": {detail}')
