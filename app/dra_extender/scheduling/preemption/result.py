"""The result of evaluating preemption: the victims on one node, or why no pod is preempted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.reader import Reader


class Victim(msgspec.Struct, frozen=True):
    """A pod to evict. `claims`: the claims that it uses and that are free once all victims are gone; `devices`: their
    devices. `violates_budget`: evicting it after the victims before it violates a PodDisruptionBudget.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    devices: tuple[DeviceID, ...] = ()
    violates_budget: bool = False


class Preemption(msgspec.Struct, frozen=True):
    """`victims`: at least one, the most important first. `plans`: the allocations that the preemptor's claims then get
    on the node.
    """

    preemptor: Pod
    node: str
    victims: tuple[Victim, ...]
    plans: tuple[Planned, ...]

    @property
    def violations(self) -> int:
        """The number of evictions that violate a budget."""
        return sum(victim.violates_budget for victim in self.victims)

    def needed(self) -> Mapping[str, tuple[DeviceID, ...]]:
        """By UID of a victim: its devices that the preemptor gets. All of them, when the preemptor gets none directly
        but needs them to be unused, for example because they share counters. Linear in all devices.
        """
        got = {result.id for _, allocation in self.plans for result in allocation.devices.results}
        return {
            victim.pod.metadata.uid: tuple(device for device in victim.devices if device in got) or victim.devices
            for victim in self.victims
        }

    def text(self, reader: Reader) -> str:
        """Victims, node and devices as the end of a sentence."""
        pods = reader.listed("pod", (victim.pod.metadata.key for victim in self.victims))
        return f"{pods} on node {self.node}{for_devices(self.devices())}"

    def devices(self) -> tuple[str, ...]:
        """The devices of victims that the preemptor gets (driver/pool/device), each once."""
        return tuple(dict.fromkeys(map("/".join, chain.from_iterable(self.needed().values()))))


def known_to(reader: Reader, pod: Pod) -> str:
    """The name of the pod in an event on another pod: its UID for a pod of another namespace, as in kube-scheduler."""
    return f"pod {pod.metadata.key if reader.sees(pod.metadata.key) else pod.metadata.uid}"


def for_devices(devices: Sequence[str]) -> str:
    """The devices as the end of a sentence; empty when they are unknown."""
    if not devices:
        return ""
    return f" for {'device' if len(devices) == 1 else 'devices'} {', '.join(devices)}"


Why = Literal["never", "nominated", "refused", "fits", "waits", "hopeless", "unknown"]
"""Why no pod is preempted:
- never: the pod must not preempt, or no pod has a lower priority;
- nominated: victims of an earlier preemption are terminating;
- refused: the pod's claims cannot be decided on;
- fits: the pod fits without an eviction;
- waits: the pod fits once pods that are terminating are gone;
- hopeless: no eviction helps;
- unknown: not everything could be decided now.
"""


class NoPreemption(msgspec.Struct, frozen=True):
    """No preemption. `reason` is for people; it is constant except for names of claims. `node`: where the pod fits, or
    will fit.
    """

    why: Why
    reason: str
    node: str = ""
