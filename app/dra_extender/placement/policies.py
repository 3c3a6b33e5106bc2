"""Placement policies: what taking devices, CPU and memory from a node costs, and which policy is in force for a pod.
The policy `fragmentation` weighs by the workload seen so far: how often each pod shape comes, how scarce its devices
are.

Promises: pure and deterministic. A policy compares states of nodes; it never decides what fits. `pack` and `spread` are
MostAllocated and LeastAllocated of NodeResourcesFit with devices as one more resource: the mean of the used parts of
devices, CPU and memory, where a node has them. `Workload.count` costs the same however many pods were seen; counts are
halved when there are many, so a shape that has not come for long is forgotten.

`fragmentation` is a weighted loss: how much less the node can serve afterwards of the pods seen so far. Descended from
Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023); different from there are weights by scarcity, devices
that CPU and memory cannot feed, and exact costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.placement.freedevices import FreeDevices
from dra_extender.placement.freestates import NodeFreeState
from dra_extender.placement.podshape import REMEMBERED_BYTES, Need, PodShape, filters_of

MOST_PODS: Final = 1 << 16
"""When this many pods are counted, all counts are halved."""
MOST_SHAPES: Final = 512
"""Shapes that are counted; when more come, or those with more than `REMEMBERED_BYTES`, the rarest half is forgotten."""
MOST_FILTERS: Final = 16
MOST_PARTS: Final = 64
"""Filters, and requests with their alternatives, of one shape; a shape with more is not counted."""

SCARCITY_LIMIT: Final = 20.0
"""A shape counts at most this many times its frequency, however scarce its devices are."""
FED_PART: Final = 0.5
"""λ: the part of a device's value that needs CPU and memory of its node."""

_HARD: Final = 4
"""Times as long as a shape takes in `worth`, it takes in `scarce`."""

_NO_CPU: Final = 1e12
_EXACT: Final = 1 - 1e-12


class NeedWeights(msgspec.Struct, frozen=True, gc=False):
    """Shapes with one need: per shape cpu and memory inverted (copies per millicore and byte), and the weight."""

    need: Need
    shapes: tuple[tuple[float, float, float], ...]


Weights = tuple[NeedWeights, ...]


class Workload:
    """Counts of pods by shape."""

    def __init__(self) -> None:
        self._counts: dict[PodShape, float] = {}
        self.pods = 0
        """How many were counted."""

    def count(self, shape: PodShape) -> None:
        """A pod of this shape has come. Pods without devices do not matter, and those with too many parts."""
        self.pods += 1
        parts = sum(map(len, shape.need.demands))
        if not 0 < parts <= MOST_PARTS or len(filters_of(shape)) > MOST_FILTERS:
            return
        self._counts[shape] = self._counts.get(shape, 0.0) + 1
        if sum(self._counts.values()) > MOST_PODS:
            self._counts = {known: count / 2 for known, count in self._counts.items() if count > 1}
        elif len(self._counts) > MOST_SHAPES or sum(known.size for known in self._counts) > REMEMBERED_BYTES:
            kept = sorted(self._counts, key=lambda known: -self._counts[known])[: MOST_SHAPES // 2]
            sizes = zip(kept, accumulate(known.size for known in kept), strict=True)
            self._counts = {known: self._counts[known] for known, size in sizes if size <= REMEMBERED_BYTES // 2}

    def forget(self, filter: DeviceFilter) -> bool:
        """No shape with this filter counts any more. False when none did."""
        kept = {shape: count for shape, count in self._counts.items() if filter not in filters_of(shape)}
        found, self._counts = len(kept) < len(self._counts), kept
        return found

    def frequencies(self) -> Iterator[tuple[PodShape, float]]:
        """The share of each shape in all that are remembered."""
        total = sum(self._counts.values())
        yield from ((shape, count / total) for shape, count in self._counts.items())


def plain(frequencies: Iterable[tuple[PodShape, float]]) -> Weights:
    """Each shape counts by its frequency."""
    by_need: dict[Need, list[tuple[float, float, float]]] = {}
    for shape, weight in frequencies:
        inverted = 1 / shape.cpu if shape.cpu else _NO_CPU, 1 / shape.memory if shape.memory else _NO_CPU
        by_need.setdefault(shape.need, []).append((*inverted, weight))
    return tuple(NeedWeights(need, tuple(shapes)) for need, shapes in by_need.items())


class Scarcity:
    """How much each shape counts, given the states of nodes and how many nodes are in each: its frequency times the
    free devices divided by the devices that the shape can still use. Computed state by state with `step`.
    """

    def __init__(
        self, frequencies: Iterable[tuple[PodShape, float]], nodes: Iterable[tuple[NodeFreeState, int]]
    ) -> None:
        self._rows = plain(frequencies)
        self._nodes = list(nodes)
        self._usable = [[0.0] * len(row.shapes) for row in self._rows]
        self._free = 0.0
        parts = sum(len(demand) for row in self._rows for demand in row.need.demands)
        self._work = _HARD * sum(len(row.shapes) for row in self._rows) + parts

    def step(self, budget: WorkBudget) -> int:
        """Count one state. The work that it took; 0 when all are counted. Raises TooCostly and TurnSpent."""
        if not self._nodes:
            return 0
        state, count = self._nodes[-1]
        supplies = [state.devices.supply(row.need, budget) for row in self._rows]
        self._nodes.pop()
        self._free += count * state.devices.free
        for row, sums, supply in zip(self._rows, self._usable, supplies, strict=True):
            if supply is not None:
                for index, (cpu, memory, _) in enumerate(row.shapes):
                    sums[index] += count * supply.touch * fed(state.cpu * cpu, state.memory * memory, supply.copies)
        return max(1, self._work)

    def weights(self) -> Weights:
        """The weights, once all states are counted."""
        return tuple(
            NeedWeights(
                row.need,
                tuple(
                    (cpu, memory, weight * (min(SCARCITY_LIMIT, self._free / total) if total > 0 else SCARCITY_LIMIT))
                    for (cpu, memory, weight), total in zip(row.shapes, sums, strict=True)
                ),
            )
            for row, sums in zip(self._rows, self._usable, strict=True)
        )


class Use(NamedTuple):
    """What a devices offers to the shapes of one row."""

    touch: float
    copies: float
    shapes: tuple[tuple[float, float, float], ...]


def remaining_value(uses: Iterable[Use], free_cpu: float, free_memory: float, fed_part: float = FED_PART) -> float:
    """The remaining value of a node with these uses: over all shapes, weight times the devices that the shape can get
    at, those less that CPU and memory could not feed. The heart of the cost, so it is written for speed.
    """
    total = 0.0
    plain_part = 1 - fed_part
    for touch, copies, shapes in uses:
        part = 0.0
        share = fed_part / copies
        for cpu, memory, weight in shapes:
            fed_by_cpu, fed_by_memory = free_cpu * cpu, free_memory * memory
            enough = fed_by_cpu if fed_by_cpu < fed_by_memory else fed_by_memory
            if enough >= copies:
                part += weight
            elif enough >= _EXACT:
                part += weight * (plain_part + share * enough)
        total += touch * part
    return total


def fed(by_cpu: float, by_memory: float, copies: float, fed_part: float = FED_PART) -> float:
    """The part of the devices that counts, when CPU, memory and devices suffice for this many pods each."""
    enough = min(by_cpu, by_memory)
    if enough < _EXACT:
        return 0.0
    return 1.0 if enough >= copies else 1 - fed_part + fed_part * enough / copies


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


class Allocated(Policy):
    """Compares how much of the node is used afterwards. With `sign` -1 the fullest node is best, and there what leaves
    most in one piece: the device that has least left. With 1 the emptiest node, and the device that has most left.
    """

    def __init__(self, name: str, sign: int) -> None:
        super().__init__()
        self.name = name
        self.sign = sign

    def cost(self, before: NodeFreeState, after: NodeFreeState, budget: WorkBudget) -> Cost:
        self.work += _STEPS
        return self.sign * used_part(after), self.sign * after.devices.unfragmented


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
        """The rows that the devices have anything for."""
        found = self._uses.get(devices)
        if found is None:
            if len(self._uses) >= REMEMBERED:
                self._uses.clear()
            supplies = ((devices.supply(row.need, budget), row.shapes) for row in self._weights)
            found = tuple(Use(*supply, shapes) for supply, shapes in supplies if supply is not None)
            self._uses[devices] = found
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
