"""Fragmentation: capacity that suffices in total but not in the pieces it comes in.

Promises: every question is a relaxation of what is still to be decided, so a `no` is a proof. A question has one
dimension: the sizes of items, and the room of bins. An item may go into every bin; a limit on the work makes the answer
yes. Two questions are asked, each only where a task has them:

- shares: for each capacity, the least that requests consume, into what the shared devices have left of it;
- groups: for each set of devices that requests accept, the claims whose devices must have one value of an attribute in
  common, into the devices of each value.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd
from operator import sub
from typing import Final

from dra_extender.allocation.constraints import AttributeTable
from dra_extender.allocation.proofs.demands import OpenRequest
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask
from dra_extender.devices.pools import places
from dra_extender.devices.usage import NO_AMOUNTS

Sizes = tuple[int, ...]
"""Descending."""

MAX_ITEMS: Final = 256

MOST_STEPS: Final = 2_000
"""How many steps the first question may take before it counts as answered with yes."""
LEAST_STEPS: Final = 40
"""How many every question may take."""

MOST_SETS: Final = 4
"""How many different sets of accepted devices are compared."""

SHARE: Final = 2
"""Units of work that it costs to see what one alternative consumes of one device."""

MAX_SUM: Final = 1 << 14
"""Up to this sum, in units of their greatest common divisor, all sums of sizes are computed."""

SIZES: Final = 4
"""Sizes or amounts that are compared in a unit of work."""


class Packing:
    """Both questions for one task. `steps` counts the items that were put into a bin."""

    def __init__(self, task: AllocationTask, *, shares: bool, groups: bool) -> None:
        self.steps = 0
        self._task = task
        self._shares = shares and task.shareable != 0
        self._groups = groups and bool(task.constraints)
        self._filling = Filling(task.charge)
        self._most_steps = MOST_STEPS

    def refutes(self, state: SearchState, found: Sequence[OpenRequest], narrowed: Sequence[OpenRequest]) -> str:
        """The reason why no solution exists; empty when packing does not prove that. Raises WorkExceeded."""
        if self._shares and not self._shares_fit(state, narrowed):
            return "the capacity left does not suffice for all shares together"
        if self._groups and not self._groups_fit(found):
            return "no distribution of the claims over groups of matching devices is possible"
        return ""

    def _fits(self, sizes: list[int], rooms: list[int]) -> bool:
        """A question that is too hard lowers the limit of the next ones."""
        if len(sizes) > MAX_ITEMS:
            return True
        before, limit = self._filling.steps, self._most_steps
        fits = self._filling.feasible(sizes, rooms, limit)
        if self._filling.gave_up:
            self._most_steps = max(limit // 4, LEAST_STEPS)
        self.steps += self._filling.steps - before
        return fits

    def _shares_fit(self, state: SearchState, narrowed: Sequence[OpenRequest]) -> bool:
        """Several devices for one request count as several shares; each exclusive device takes one share, the largest
        that is left. With admin access several requests can have one exclusive device.
        """
        task, mask = self._task, 0
        wanting = [
            demand
            for demand in narrowed
            if demand.need and demand.mask & task.shareable and not (demand.admin and demand.mask & ~task.shareable)
        ]
        task.charge(1 + task.shareable.bit_length() // SIZES)
        for demand in wanting:
            mask |= demand.mask
        if sum(demand.need for demand in wanting) < 2:
            return True
        exclusive = (mask & ~task.shareable).bit_count()
        mask &= task.shareable
        devices = list(places(mask))
        amounts = sum([len(task.view.devices[device].model.traits.capacity) for device in devices])
        choices = 1 + sum([len(demand.choices) for demand in wanting])
        task.charge(choices * (SHARE * len(devices) + amounts // SIZES))
        rooms: dict[str, list[int]] = defaultdict(list)
        for device in devices:
            for name, room in self._left(state, device):
                rooms[name].append(room)
        sizes: dict[str, list[int]] = defaultdict(list)
        for demand in wanting:
            for name, amount in self._least(demand, devices):
                sizes[name] += [amount] * demand.need
        for name, found in sizes.items():
            shared = sorted(found)[: len(found) - exclusive] if exclusive < len(found) else []
            if len(shared) > 1 and not self._fits(shared, rooms[name]):
                return False
        return True

    def _left(self, state: SearchState, device: int) -> Iterator[tuple[str, int]]:
        allocated = self._task.holdings.shared.get(device, NO_AMOUNTS)
        attempt = state.consumed.get(device, NO_AMOUNTS)
        for name, offered in self._task.view.devices[device].model.traits.capacity.items():
            yield name, max(0, offered.value.nano - allocated.get(name, 0) - attempt.get(name, 0))

    def _least(self, demand: OpenRequest, devices: Sequence[int]) -> Iterator[tuple[str, int]]:
        """The least that one share of the request consumes of each capacity, whichever device it takes."""
        least: dict[str, int] = {}
        counts: Counter[str] = Counter()
        possible = 0
        for choice in demand.choices:
            for device in devices:
                if choice.mask >> device & 1:
                    possible += 1
                    for name, amount in self._task.suitability(device, choice.option.ask.filter).takes or ():
                        least[name] = min(least.get(name, amount.nano), amount.nano)
                        counts[name] += 1
        return ((name, amount) for name, amount in least.items() if amount and counts[name] == possible)

    def _groups_fit(self, found: Sequence[OpenRequest]) -> bool:
        table = self._common_table(found)
        if table is None:
            return True
        self._task.charge(table.grouping_cost + len(found) * (1 + len(self._task.constraints) // SIZES))
        members = [
            demand for demand in found if demand.need and not demand.admin and not demand.mask & self._task.shareable
        ]
        groups = [*table.islands, ~table.known]
        return all(
            self._set_fits(accepted, members, groups, table) for accepted in _sets(demand.mask for demand in members)
        )

    def _set_fits(
        self, accepted: int, members: Sequence[OpenRequest], groups: Sequence[int], table: AttributeTable
    ) -> bool:
        """Whether the requests that accept only devices of this set have room in the groups."""
        self._task.charge(len(groups) * (1 + len(members) // SIZES))
        rooms = [(group & accepted).bit_count() for group in groups]
        sizes: list[int] = []
        together: dict[int, int] = defaultdict(int)
        for demand in members:
            mask = demand.mask
            if mask & ~accepted:
                continue
            binding = self._binding(demand, table)
            if binding is not None:
                together[binding] += demand.need
                continue
            touched = [index for index, group in enumerate(groups) if mask & group]
            if len(touched) == 1:
                rooms[touched[0]] -= demand.need
            else:
                sizes += [1] * demand.need
        if max(together.values(), default=0) < 2:
            return True
        return min(rooms) >= 0 and self._fits([*sizes, *together.values()], rooms)

    def _common_table(self, found: Sequence[OpenRequest]) -> AttributeTable | None:
        """The attribute that most claims want to match, the first of those, if any."""
        tables: Counter[AttributeTable] = Counter()
        for claim in {demand.claim for demand in found}:
            constraints = (self._task.constraints[index] for index in self._task.claim_constraints[claim])
            plain = (constraint for constraint in constraints if constraint.match and not constraint.derived)
            tables.update([*dict.fromkeys(constraint.table for constraint in plain)])
        if not tables:
            return None
        table = tables.most_common(1)[0][0]
        return table if table.present == table.known and len(found) > 1 else None

    def _binding(self, demand: OpenRequest, table: AttributeTable) -> int | None:
        """The constraint that keeps the devices of the request together with those of others."""
        for index in self._task.claim_constraints[demand.claim]:
            constraint = self._task.constraints[index]
            if constraint.match and constraint.table is table and demand.covers >> index & 1:
                return index
        return None


def _sets(masks: Iterable[int]) -> list[int]:
    """The most frequent masks, and all of them together."""
    frequent = Counter(masks)
    every = 0
    for mask in frequent:
        every |= mask
    return list(dict.fromkeys([every, *(mask for mask, _ in frequent.most_common(MOST_SETS - 1))]))


class _TooLong(Exception):
    """The answer is not to be had within the limit."""


@dataclass(slots=True, eq=False)
class Filling:
    """Whether sizes fit into rooms: the largest size is put into each different room in turn.

    Promises: False only when it is proven. A branch ends when the rooms that are left lose more than may be lost,
    whatever sizes they get. Failed combinations of sizes and rooms are remembered for later questions.

    `steps` counts the sizes that were put into a room, over all questions; `_spend` is called with the work of looking
    at sizes and rooms before it is done, and may raise.
    """

    _spend: Callable[[int], None] = lambda units: None
    steps: int = 0
    gave_up: bool = False
    """The latest question was not answered within its limit."""
    _most_steps: int = 0
    _failed: set[tuple[Sizes, Sizes]] = field(default_factory=set)

    def feasible(self, sizes: Sequence[int], rooms: Sequence[int], limit: int) -> bool:
        """False when it is proven that not all sizes fit. Otherwise True, also when `limit` steps do not suffice for a
        proof. Raises what `spend` does.
        """
        self.gave_up = False
        ordered = tuple(sorted(sizes, reverse=True))
        self._spend(len(sizes) * (1 + len(rooms) // SIZES))
        if _fits_greedily(ordered, rooms):
            return True
        self._most_steps = self.steps + limit
        try:
            return self._fill(ordered, tuple(sorted(rooms)))
        except _TooLong:
            self.gave_up = True
            return True

    def _fill(self, sizes: Sizes, rooms: Sizes) -> bool:
        if not sizes:
            return True
        rooms = rooms[bisect_left(rooms, sizes[-1]) :]  # smaller ones hold nothing
        slack = sum(rooms) - sum(sizes)
        if slack < 0 or not rooms or sizes[0] > rooms[-1]:
            return False
        if (sizes, rooms) in self._failed:
            return False
        self._spend(1 + len(sizes) + len(rooms))
        lost = map(sub, rooms, map(Reachable(sizes).most, rooms))
        if sum(lost) <= slack and any(self._fill(sizes[1:], left) for left in self._placed(sizes[0], rooms)):
            return True
        self._failed.add((sizes, rooms))
        return False

    def _placed(self, size: int, rooms: Sizes) -> Iterator[Sizes]:
        """What is left of the rooms, ascending, when the size is in one of them. An exact fit is as good as any."""
        first = bisect_left(rooms, size)
        for index in range(first, first + 1 if rooms[first] == size else len(rooms)):
            if index == first or rooms[index] != rooms[index - 1]:
                self.steps += 1
                if self.steps > self._most_steps:
                    raise _TooLong
                rest = [*rooms[:index], *rooms[index + 1 :]]
                insort(rest, rooms[index] - size)
                yield tuple(rest)


class Reachable:
    """The sums that some of the sizes can add up to."""

    __slots__ = ("_sums", "_total", "_unit")

    def __init__(self, sizes: Sizes) -> None:
        self._total = sum(sizes)
        self._unit = gcd(*sizes) or 1
        self._sums = 0
        if self._total // self._unit <= MAX_SUM:
            self._sums = 1
            for size in sizes:
                self._sums |= self._sums << size // self._unit

    def most(self, room: int) -> int:
        """The largest sum that fits, or the room when there are too many sums to compute them."""
        if room >= self._total or not self._sums:
            return min(room, self._total)
        return ((self._sums & ((2 << room // self._unit) - 1)).bit_length() - 1) * self._unit


def _fits_greedily(sizes: Sizes, rooms: Sequence[int]) -> bool:
    """Largest first, each into the fullest room that takes it."""
    left = sorted(rooms)
    for size in sizes:
        place = next((index for index, room in enumerate(left) if room >= size), None)
        if place is None:
            return False
        left[place] -= size
        left.sort()
    return True
