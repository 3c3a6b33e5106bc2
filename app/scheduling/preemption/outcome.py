"""What comes of the question whom a pod should preempt."""

from __future__ import annotations

from typing import Literal

import msgspec

from app.api.core import Pod
from app.api.resource import DeviceID, ResourceClaim
from app.devices.overlay import Planned


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
