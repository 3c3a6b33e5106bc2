"""Field errors of volume claims that are made for a pod and go with it.

Selectors and sources of data are not looked at.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Final

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required, unsupported
from embedded_cluster.apiserver.validation.parts import name_problems

_ALONE: Final = "ReadWriteOncePod"
_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _ALONE)
_VOLUME_MODES: Final = ("Block", "Filesystem")


def problems(template: JSON | None, at: str) -> list[Problem]:
    """Of a `volumeClaimTemplate`."""
    if template is None:
        return [required(at)]
    spec, where = template["spec"], f"{at}.spec"
    found = _mode_problems(spec.get("accessModes") or (), f"{where}.accessModes")
    amount = (spec.get("resources") or {}).get("requests", {}).get("storage")
    if amount is None:
        found.append(required(f"{where}.resources[storage]"))
    elif Quantity.parse(amount).nano <= 0:
        found.append(invalid_value(f"{where}.resources[storage]", amount, "must be greater than zero"))
    if spec.get("storageClassName"):
        found += name_problems(spec["storageClassName"], f"{where}.storageClassName", names.dns_subdomain)
    if spec["volumeMode"] not in _VOLUME_MODES:
        found.append(unsupported(f"{where}.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return found


def _mode_problems(modes: list[str] | tuple[str, ...], at: str) -> list[Problem]:
    if not modes:
        return [required(at, "at least 1 access mode is required")]
    found = [unsupported(at, mode, _MODES) for mode in modes if mode not in _MODES]
    if _ALONE in modes and any(mode != _ALONE and mode in _MODES for mode in modes):
        found.append(forbidden(at, "may not use ReadWriteOncePod with other access modes"))
    return found
