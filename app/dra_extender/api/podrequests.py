"""What a pod asks of its node.

Rules: Kubernetes 1.36, component-helpers/resource/helpers.go (PodRequests).
"""

from __future__ import annotations

from collections.abc import Mapping

from dra_extender.api.core import Pod
from dra_extender.api.quantity import Quantity


def requested(pod: Pod) -> dict[str, int]:
    """By resource, in nano units: containers together or the largest init container, sidecars with both, and the
    overhead.
    """
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, container.resources.requests)
    if pod.spec.init_containers:
        sidecars: dict[str, int] = {}
        peak: dict[str, int] = {}
        for container in pod.spec.init_containers:
            alone = dict(sidecars)
            _add(alone, container.resources.requests)
            for name, amount in alone.items():
                peak[name] = max(peak.get(name, 0), amount)
            if container.restart_policy == "Always":
                sidecars = alone
        for name, amount in sidecars.items():
            total[name] = total.get(name, 0) + amount
        for name, amount in peak.items():
            total[name] = max(total.get(name, 0), amount)
    _add(total, pod.spec.overhead)
    return total


def _add(total: dict[str, int], more: Mapping[str, Quantity]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount.nano
