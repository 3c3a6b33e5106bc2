"""Which changes of the cluster make kube-scheduler try a refused pod again.

Source: Kubernetes 1.36, pkg/scheduler/eventhandlers.go and framework/types.go. A pod refused by an extender is woken by
every change of bound pods, nodes, claims and classes, and by any change of itself; by ResourceSlices never.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dra_extender.api.resource import DeviceClass, ResourceClaim
from embedded_cluster.objects import FullNode, FullPod

Refuser = Literal["extender", "resources", "node"]
"""Who refused a pod: an extender, NodeResourcesFit, or a filter that looks at the node only."""

Change = Literal["own pod", "bound pod", "bound pod gone", "node", "claim", "class"]


class Wakeup(msgspec.Struct, frozen=True):
    """An event, reduced to what decides whom it wakes."""

    change: Change

    @property
    def may_open_gate(self) -> bool:
        """True when a pod that waits for its claims to exist may go on."""
        return self.change in ("claim", "own pod")


_WAKES: dict[Refuser, frozenset[Change]] = {
    "extender": frozenset(("own pod", "bound pod", "bound pod gone", "node", "claim", "class")),
    "resources": frozenset(("own pod", "bound pod gone", "node")),
    "node": frozenset(("own pod", "node")),
}


def wakes(wakeup: Wakeup, refusers: frozenset[Refuser]) -> bool:
    """True when a pod refused by these is tried again."""
    return any(wakeup.change in _WAKES[refuser] for refuser in refusers)


def of_pod(old: FullPod | None, new: FullPod | None) -> Wakeup | None:
    """What the change of another pod means. Pods without a node wake no other."""
    before = old is not None and bool(old.spec.node_name)
    after = new is not None and bool(new.spec.node_name)
    ended = new is None or new.status.phase in ("Succeeded", "Failed")
    if before and ended and not (old is not None and old.status.phase in ("Succeeded", "Failed")):
        return Wakeup("bound pod gone")
    if after and not ended:
        return Wakeup("bound pod")
    return None


def of_node(old: FullNode | None, new: FullNode | None) -> Wakeup | None:
    """Heartbeats and other status noise wake no pod."""
    if old is None or new is None:
        return Wakeup("node")
    same = (
        old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
    )
    return None if same else Wakeup("node")


def of_claim(old: ResourceClaim | None, new: ResourceClaim | None) -> Wakeup:
    """Every change of every claim."""
    return Wakeup("claim")


def of_class(old: DeviceClass | None, new: DeviceClass | None) -> Wakeup:
    """Every change of every class."""
    return Wakeup("class")
