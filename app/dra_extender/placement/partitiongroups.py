"""Partition groups: what devices are made of, each with its free part.

A group is a device of its own, with or without shares taken from it, or all devices that counters link: a GPU with all
partitions that it can be cut into. Groups that offer the same are one object, on whichever node they are, so the answer
of a filter for one is computed once.

Promises: pure. What a group offers is an estimate for comparing choices, exact for a request on its own; whether a pod
fits is for the allocator to say.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from dra_extender.allocation.budget import Deferred, WorkBudget
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.selection import suitability
from dra_extender.devices.models import DeviceModel, Memo
from dra_extender.devices.usage import Amounts
from dra_extender.limits import PAIRS_OF_GROUP

Used = tuple[tuple[str, int], ...]
"""Capacity name and nano units that shares consume, sorted."""

REMEMBERED: Final = 500
PER_UNIT: Final = 4
"""Devices linked by counters that are put into a group per unit of work; and counters that cost as much as one."""


class Rate(NamedTuple):
    """What a group offers to a filter. `touch`: how much of the group the filter selects; `copies`: how many devices or
    shares it could still give; `after`: what may become of the group when it gives one, each outcome once.
    """

    touch: float
    copies: int
    after: tuple[PartitionGroup, ...]


_NOTHING: Final = Rate(0.0, 0, ())


class TooCostly(Exception):
    """Evaluating the selectors of this filter, or comparing what they select, takes longer than a policy may."""

    def __init__(self, filter: DeviceFilter) -> None:
        super().__init__(filter)
        self.filter = filter


class PartitionGroup(Memo):
    """`free`: how much of it is left, from 0 to 1. `unfragmented`: how much that is in one piece, from 0 to 1 as well:
    half a device counts less than half. Different groups have different numbers.
    """

    __slots__ = ("free", "memo", "number", "unfragmented")

    once = True
    """One request cannot take two devices of it."""

    def __init__(self, number: int, *, free: float, unfragmented: float) -> None:
        self.number = number
        self.free = free
        self.unfragmented = unfragmented
        self.memo = {}

    def rate(self, filter: DeviceFilter, budget: WorkBudget) -> Rate:
        """Remembered. Raises TooCostly and TurnSpent."""
        found: Rate | None = self.memo.get(filter.key)
        if found is not None:
            return found
        try:
            return self.remember(filter.key, self._rate(filter, budget), REMEMBERED)
        except Deferred:
            raise TooCostly(filter) from None

    def _rate(self, filter: DeviceFilter, budget: WorkBudget) -> Rate:
        return _NOTHING


class SingleDevice(PartitionGroup):
    """A device that consumes no counters. `used`: what shares take of it, None without shares."""

    __slots__ = ("_groups", "_model", "_shared", "_used")

    def __init__(self, groups: PartitionGroups, model: DeviceModel, used: Used | None, *, shared: bool) -> None:
        free = _left(model, used or ())
        super().__init__(len(groups), free=free, unfragmented=free * free)
        self._groups = groups
        self._model = model
        self._used = used
        self._shared = shared

    def _rate(self, filter: DeviceFilter, budget: WorkBudget) -> Rate:
        found = suitability(self._model, filter, budget)
        if found.lost is not None or not found.selected:
            return _NOTHING
        if not self._shared:
            return Rate(self.free, 1, (self._groups.gone(),))
        takes, used = found.takes or (), dict(self._used or ())
        capacity = self._model.traits.capacity
        copies = min(
            ((capacity[name].value.nano - used.get(name, 0)) // amount.nano for name, amount in takes if amount.nano),
            default=1,
        )
        if copies <= 0:
            return _NOTHING
        used |= {name: used.get(name, 0) + amount.nano for name, amount in takes}
        return Rate(self.free, copies, (self._groups.device(self._model, used, shared=True),))


def _left(model: DeviceModel, used: Used) -> float:
    """The scarcest capacity counts."""
    capacity = model.traits.capacity
    parts = [
        1 - min(amount, total) / total
        for name, amount in used
        if name in capacity and (total := capacity[name].value.nano) > 0
    ]
    return max(0.0, min(parts, default=1.0))


class Partition(NamedTuple):
    """A partition: its model, and what it consumes, as (number of the counter, nano units)."""

    model: DeviceModel
    charge: tuple[tuple[int, int], ...]


class CounterTie(NamedTuple):
    """What links devices: the `total` of each counter, and in how many `pieces` they can be had at all, the larger the
    better: the sum of squared sizes.
    """

    total: tuple[int, ...]
    pieces: float

    @classmethod
    def of(cls, total: tuple[int, ...], members: Iterable[Partition]) -> CounterTie:
        """That of all these members."""
        bare = cls(total, 0.0)
        return bare._replace(pieces=sum(bare.size(member) ** 2 for member in members))

    def size(self, member: Partition) -> float:
        """The mean part of the counters that the member takes, 0 to 1."""
        charges = ((amount, self.total[counter]) for counter, amount in member.charge)
        parts = [min(amount, total) / total for amount, total in charges if total > 0]
        return sum(parts) / len(self.total) if parts else 0.0


class CountedDevices(PartitionGroup):
    """Devices that share counters. `members` can be allocated, in search order; `left` is what the counters
    still offer.
    """

    __slots__ = ("_groups", "_left", "_members", "_tie")

    once = False

    def __init__(
        self, groups: PartitionGroups, tie: CounterTie, members: tuple[Partition, ...], left: tuple[int, ...]
    ) -> None:
        parts = [min(max(0, amount), whole) / whole for amount, whole in zip(left, tie.total, strict=True) if whole > 0]
        pieces = sum(tie.size(member) ** 2 for member in members)
        super().__init__(
            len(groups),
            free=sum(parts) / len(parts) if parts else 1.0,
            unfragmented=pieces / tie.pieces if tie.pieces else 1.0,
        )
        self._groups = groups
        self._tie = tie
        self._members = members
        self._left = left

    def _rate(self, filter: DeviceFilter, budget: WorkBudget) -> Rate:
        if any(amount < 0 for amount in self._left):
            return _NOTHING
        wanted = [
            index
            for index, member in enumerate(self._members)
            if (found := suitability(member.model, filter, budget)).selected and found.lost is None
        ]
        if not wanted:
            return _NOTHING
        members = self._members  # neighbours that are equal leave the same when they are taken
        unlike = [index for index in wanted if not index or members[index] != members[index - 1]]
        work = len(unlike) * (len(members) + len(self._left) // PER_UNIT)
        if work > PAIRS_OF_GROUP:
            raise TooCostly(filter)
        budget.spend(work // PER_UNIT)
        left, copies = list(self._left), 0
        for index in wanted:
            charge = self._members[index].charge
            if all(left[counter] >= amount for counter, amount in charge):
                copies += 1
                for counter, amount in charge:
                    left[counter] -= amount
        after = {(group := self._without(index)).number: group for index in unlike}
        return Rate(self.free, copies, tuple(after.values()))

    def _without(self, index: int) -> PartitionGroup:
        left = list(self._left)
        for counter, amount in self._members[index].charge:
            left[counter] -= amount
        members = self._members[:index] + self._members[index + 1 :]
        return self._groups.counted(self._tie, members, tuple(left))


class PartitionGroups:
    """All groups by what they offer."""

    def __init__(self) -> None:
        self._by_content: dict[Hashable, PartitionGroup] = {}

    def __len__(self) -> int:
        return len(self._by_content)

    def gone(self) -> PartitionGroup:
        """A device, or a group of linked ones, of which nothing is free."""
        return self._by_content.get(None) or self._keep(None, PartitionGroup(len(self), free=0.0, unfragmented=0.0))

    def device(self, model: DeviceModel, amounts: Amounts | None, *, shared: bool) -> PartitionGroup:
        """A device without counters, for one claim or `shared`, with what shares take of it."""
        used = None if amounts is None else tuple(sorted(amounts.items()))
        key = model, used, shared
        return self._by_content.get(key) or self._keep(key, SingleDevice(self, model, used, shared=shared))

    def counted(self, tie: CounterTie, members: Sequence[Partition], left: tuple[int, ...]) -> PartitionGroup:
        """Devices linked by counters, of which these members are not allocated."""
        able = tuple(member for member in members if all(left[counter] >= amount for counter, amount in member.charge))
        key = tie, able, left
        return self._by_content.get(key) or self._keep(key, CountedDevices(self, tie, able, left))

    def _keep(self, key: Hashable, group: PartitionGroup) -> PartitionGroup:
        self._by_content[key] = group
        return group
