"""What comes of the question whom a pod should preempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.overlay import Planned


class Victim(msgspec.Struct, frozen=True):
    """A pod that has to go. `claims`: those that are free when all victims are gone and that this one uses, `devices`
    what they have. `violates_budget`: its eviction, after those of the victims before it, violates a budget.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    devices: tuple[DeviceID, ...] = ()
    violates_budget: bool = False


class Preemption(msgspec.Struct, frozen=True):
    """`victims`: the most important first, at least one. `plans`: the claims that the preemptor then gets allocated on
    the node, each with its devices.
    """

    preemptor: Pod
    node: str
    victims: tuple[Victim, ...]
    plans: tuple[Planned, ...]

    @property
    def violations(self) -> int:
        """How many evictions violate a budget."""
        return sum(victim.violates_budget for victim in self.victims)

    def needed(self, victim: Victim) -> tuple[DeviceID, ...]:
        """Those of a victim's devices that the preemptor gets; all of them where it needs others to be unused."""
        got = {result.id for _, allocation in self.plans for result in allocation.devices.results}
        return tuple(device for device in victim.devices if device in got) or victim.devices

    @property
    def text(self) -> str:
        """Whom, where and for what, for people."""
        names = ", ".join(victim.pod.metadata.key for victim in self.victims)
        devices = dict.fromkeys(device for victim in self.victims for device in self.needed(victim))
        return f"{'pod' if len(self.victims) == 1 else 'pods'} {names} on node {self.node}{for_devices(tuple(devices))}"


def known_to(reader: Pod, pod: Pod) -> str:
    """The pod as an event on another one may call it: in other namespaces by its UID, as kube-scheduler does."""
    return f"pod {pod.metadata.key if pod.metadata.namespace == reader.metadata.namespace else pod.metadata.uid}"


def for_devices(devices: Sequence[DeviceID]) -> str:
    """What is needed, as the end of a sentence; empty when nobody knows."""
    if not devices:
        return ""
    names = ", ".join("/".join(device) for device in devices)
    return f" for {'device' if len(devices) == 1 else 'devices'} {names}"


Why = Literal["never", "nominated", "refused", "fits", "waits", "hopeless", "unknown"]
"""never: the pod must not preempt, or there is nobody below it. nominated: victims of an earlier preemption are going.
refused: nothing can be decided for the pod. fits: nobody has to go. waits: enough pods are going already. hopeless: it
would not help. unknown: not everything could be decided now; ask again when something changes.
"""


class NoPreemption(msgspec.Struct, frozen=True):
    """Nobody is preempted. `reason` is for people, and constant but for names of claims; `node`: where the pod fits, or
    will.
    """

    why: Why
    reason: str
    node: str = ""
