"""Taints and tolerations of devices.

Promises: a device is tolerated when each of its taints with an active effect is tolerated by at least one toleration.
Times play no role.

Rules: Kubernetes 1.36, dynamic-resource-allocation/resourceclaim/devicetoleration.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from dra_extender.api.resource import DeviceTaint, DeviceToleration


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether one toleration tolerates one taint. An empty key with operator Equal matches any key."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(taints: Sequence[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether a device with these active taints may be used."""
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)
