"""Placement policies: what taking devices, CPU and memory from a node costs, and which policy is in force for a pod.

Promises: pure and deterministic. A policy compares states of nodes; it never decides what fits. `pack` and `spread` are
MostAllocated and LeastAllocated of NodeResourcesFit with devices as one more resource: the mean of the used parts of
devices, CPU and memory, where a node has them.

`fragmentation` is a weighted loss: how much less the node can serve afterwards of the pods seen so far (`workload`).
Descended from Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023); different from there are weights by
scarcity, devices that CPU and memory cannot feed, and exact costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.placement.freedevices import FreeDevices
from dra_extender.placement.freestates import NodeFreeState
from dra_extender.placement.workload import FED_PART, Use, Weights, remaining_value, uses

PolicyName = Literal["first-fit", "pack", "spread", "fragmentation"]
POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)

REMEMBERED: Final = 200_000

Cost = tuple[float, float]
"""Less is better; the second decides between devices of one node where the first is equal."""


class Policy:
    """`version` changes when costs may. `work` grows with what costs were found out, in steps of some 0.1
    microseconds.
    """

    name = ""

    def __init__(self) -> None:
        self.version = 0
        self.work = 0

    def cost(self, before: NodeFreeState, after: NodeFreeState, budget: WorkBudget) -> Cost:
        """The cost of leaving the node in the state `after`. Raises TooCostly and TurnSpent."""
        raise NotImplementedError


def used_part(state: NodeFreeState) -> float:
    """The mean of the used parts of what the node has of devices, CPU and memory, 0 to 1."""
    free, whole = state.devices.free, state.devices.whole
    resources = ((free, whole), (state.cpu, state.whole.cpu), (state.memory, state.whole.memory))
    parts = [1 - left / total for left, total in resources if total]
    return sum(parts) / len(parts) if parts else 0.0


_STEPS: Final = 20
"""Of finding out how much of a node is used."""


class _Allocated(Policy):
    """Compares how much of the node is used afterwards. `sign`: 1 when less is better, -1 when more is."""

    sign = 1

    def cost(self, before: NodeFreeState, after: NodeFreeState, budget: WorkBudget) -> Cost:
        self.work += _STEPS
        return self.sign * used_part(after), self.sign * after.devices.unfragmented


class Pack(_Allocated):
    """The fullest node, and there what leaves most in one piece: the device that has least left."""

    name = "pack"
    sign = -1


class Spread(_Allocated):
    """The emptiest node, and there the device that has most left."""

    name = "spread"


class Fragmentation(Policy):
    """The node and device that the workload loses least with. `work` grows with the shapes that were compared."""

    name = "fragmentation"

    def __init__(self, fed_part: float = FED_PART) -> None:
        super().__init__()
        self._fed_part = fed_part
        self._weights: Weights = ()
        self._uses: dict[FreeDevices, tuple[Use, ...]] = {}
        self._known: dict[tuple[FreeDevices, float, float], float] = {}

    def weigh(self, weights: Weights) -> None:
        """What shapes count from now on."""
        self.version += 1
        self._weights = weights
        self._uses.clear()
        self._known.clear()

    def remaining_value(self, state: NodeFreeState, budget: WorkBudget) -> float:
        """The remaining value of the node; remembered by its state."""
        key = state[:3]
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            used = self._used(state.devices, budget)
            self.work += _STEPS + sum(len(use.shapes) for use in used)
            found = self._known[key] = remaining_value(used, state.cpu, state.memory, self._fed_part)
        return found

    def _used(self, devices: FreeDevices, budget: WorkBudget) -> tuple[Use, ...]:
        found = self._uses.get(devices)
        if found is None:
            if len(self._uses) >= REMEMBERED:
                self._uses.clear()
            found = self._uses[devices] = uses(devices, self._weights, budget)
        return found

    def cost(self, before: NodeFreeState, after: NodeFreeState, budget: WorkBudget) -> Cost:
        lost = self.remaining_value(before, budget) - self.remaining_value(after, budget)
        return lost, -after.devices.unfragmented


ANNOTATION: Final = "dra-extender.dev/placement"
"""Of a pod or a DeviceClass: the policy for it."""


class PlacementStrategy(msgspec.Struct, frozen=True):
    """`policy` is for pods without an annotation. `only_chosen`: filter offers the chosen node alone."""

    policy: PolicyName = "first-fit"
    only_chosen: bool = False

    def named(self, annotations: Iterable[Mapping[str, str]]) -> str:
        """The policy for a pod: the first that these annotations name, or the default."""
        for annotation in annotations:
            name = annotation.get(ANNOTATION)
            if name in POLICIES:
                return name
        return self.policy
