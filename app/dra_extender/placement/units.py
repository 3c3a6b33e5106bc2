"""Units: the things that devices are made of, each with what is left of it.

A unit is a device of its own, with or without shares taken from it, or everything that counters tie together: a GPU
with all partitions that it can be cut into. Units that offer the same are one object, wherever they are, so what a
filter says of one is found out once.

Promises: pure. What a unit offers is an estimate for comparing choices, exact for a request on its own; whether a pod
fits is for the allocator to say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.selection import suitability
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.usage import Amounts

Used = tuple[tuple[str, int], ...]
"""Capacity name and nano units that shares consume, sorted."""

REMEMBERED: Final = 20_000


class Rate(NamedTuple):
    """What a unit is to a filter. `touch`: how much of the unit the filter can get at; `copies`: how many
    devices or shares it could still give; `after`: what may become of the unit when it gives one, each outcome once.
    """

    touch: float
    copies: int
    after: tuple[Unit, ...]


_NOTHING: Final = Rate(0.0, 0, ())


class TooCostly(Exception):
    """Evaluating the selectors of this filter takes longer than a policy is worth."""

    def __init__(self, filter: DeviceFilter) -> None:
        super().__init__(filter)
        self.filter = filter


class Unit:
    """See the module. `free`: how much of it is left, of `whole`. `unity`: how much that is in one piece, of `whole` as
    well: half a device is worth less than half. `number` tells units apart.
    """

    __slots__ = ("_rates", "free", "number", "unity", "whole")

    def __init__(self, number: int, whole: float, *, part: float, unity: float) -> None:
        """`part` and `unity` from 0 to 1."""
        self.number = number
        self.whole = whole
        self.free = part * whole
        self.unity = unity * whole
        self._rates: dict[DeviceFilter, Rate] = {}

    def rate(self, filter: DeviceFilter) -> Rate:
        """Remembered. Raises TooCostly and TurnSpent."""
        found = self._rates.get(filter)
        if found is None:
            if len(self._rates) >= REMEMBERED:
                self._rates.clear()
            try:
                found = self._rates[filter] = self._rate(filter)
            except Deferred:
                raise TooCostly(filter) from None
        return found

    @property
    def once(self) -> bool:
        """True when one request cannot take two devices of it."""
        return True

    def _rate(self, filter: DeviceFilter) -> Rate:
        return _NOTHING


class DeviceUnit(Unit):
    """A device that consumes no counters. `used`: what shares take of it, None when there are none."""

    __slots__ = ("_model", "_shared", "_units", "_used")

    def __init__(self, number: int, units: Units, model: DeviceModel, used: Used | None, *, shared: bool) -> None:
        part = _left(model, used or ())
        super().__init__(number, units.weight(model), part=part, unity=part * part)
        self._units = units
        self._model = model
        self._used = used
        self._shared = shared

    def _rate(self, filter: DeviceFilter) -> Rate:
        found = suitability(self._model, filter, self._units.budget)
        if found.lost is not None or not found.selected:
            return _NOTHING
        if not self._shared:
            return Rate(self.free, 1, (self._units.gone(self.whole),))
        takes, used = found.takes or (), dict(self._used or ())
        capacity = self._model.traits.capacity
        copies = min(
            ((capacity[name].value.nano - used.get(name, 0)) // amount.nano for name, amount in takes if amount.nano),
            default=1,
        )
        if copies <= 0:
            return _NOTHING
        for name, amount in takes:
            used[name] = used.get(name, 0) + amount.nano
        return Rate(self.free, copies, (self._units.device(self._model, tuple(sorted(used.items())), shared=True),))


def _left(model: DeviceModel, used: Used) -> float:
    """The scarcest capacity counts."""
    capacity = model.traits.capacity
    parts = [
        1 - amount / total for name, amount in used if name in capacity and (total := capacity[name].value.nano) > 0
    ]
    return max(0.0, min(parts, default=1.0))


class Member(NamedTuple):
    """A partition: its model, what it consumes as (number of the counter, nano units), and whether it is to be had."""

    model: DeviceModel
    charge: tuple[tuple[int, int], ...]


class Tie(NamedTuple):
    """What ties devices together: the `total` of each counter, what they count as a unit, and in how many pieces they
    can be had at all, the larger the better: the sum of squared sizes.
    """

    total: tuple[int, ...]
    whole: float
    pieces: float

    @classmethod
    def of(cls, total: tuple[int, ...], whole: float, members: Iterable[Member]) -> Tie:
        """That of all these members."""
        bare = cls(total, whole, 0.0)
        return bare._replace(pieces=sum(bare.size(member) ** 2 for member in members))

    def size(self, member: Member) -> float:
        """The mean part of the counters that the member takes, 0 to 1."""
        parts = [amount / self.total[counter] for counter, amount in member.charge if self.total[counter] > 0]
        return sum(parts) / len(self.total) if parts else 0.0


class CountedUnit(Unit):
    """Devices that share counters. `members` are those that can be had, in search order; `left` is what the counters
    still offer.
    """

    __slots__ = ("_left", "_members", "_tie", "_units")

    def __init__(self, number: int, units: Units, tie: Tie, members: tuple[Member, ...], left: tuple[int, ...]) -> None:
        parts = [max(0, amount) / whole for amount, whole in zip(left, tie.total, strict=True) if whole > 0]
        pieces = sum(tie.size(member) ** 2 for member in members)
        super().__init__(
            number,
            tie.whole,
            part=sum(parts) / len(parts) if parts else 1.0,
            unity=pieces / tie.pieces if tie.pieces else 1.0,
        )
        self._units = units
        self._tie = tie
        self._members = members
        self._left = left

    @property
    def once(self) -> bool:
        return False

    def _rate(self, filter: DeviceFilter) -> Rate:
        if any(amount < 0 for amount in self._left):
            return _NOTHING
        wanted = [
            index for index, member in enumerate(self._members) if self._selected(member, filter) and self._fits(member)
        ]
        if not wanted:
            return _NOTHING
        left, copies = list(self._left), 0
        for index in wanted:
            charge = self._members[index].charge
            if all(left[counter] >= amount for counter, amount in charge):
                copies += 1
                for counter, amount in charge:
                    left[counter] -= amount
        after = {(unit := self._without(index)).number: unit for index in wanted}
        return Rate(self.free, copies, tuple(after.values()))

    def _selected(self, member: Member, filter: DeviceFilter) -> bool:
        found = suitability(member.model, filter, self._units.budget)
        return found.selected and found.lost is None

    def _fits(self, member: Member) -> bool:
        return all(self._left[counter] >= amount for counter, amount in member.charge)

    def _without(self, index: int) -> Unit:
        left = list(self._left)
        for counter, amount in self._members[index].charge:
            left[counter] -= amount
        members = self._members[:index] + self._members[index + 1 :]
        return self._units.counted(self._tie, members, tuple(left))


class Units:
    """All units by what they offer. `weight`: what a device of a model counts. `budget`: what evaluating selectors may
    cost in this turn.
    """

    def __init__(self, weight: Callable[[DeviceModel], float], budget: WorkBudget = UNLIMITED) -> None:
        self.weight = weight
        self.budget = budget
        self._by_content: dict[Hashable, Unit] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def gone(self, whole: float) -> Unit:
        """What somebody has for himself."""
        found = self._by_content.get(whole)
        return found or self._keep(whole, Unit(self._count, whole, part=0.0, unity=0.0))

    def device(self, model: DeviceModel, used: Used | None, *, shared: bool) -> Unit:
        """A device without counters that nobody owns."""
        key = model, used, shared
        found = self._by_content.get(key)
        return found or self._keep(key, DeviceUnit(self._count, self, model, used, shared=shared))

    def counted(self, tie: Tie, members: Sequence[Member], left: tuple[int, ...]) -> Unit:
        """Devices tied together by counters, of which nobody has these members."""
        able = tuple(member for member in members if all(left[counter] >= amount for counter, amount in member.charge))
        key = tie, able, left
        found = self._by_content.get(key)
        return found or self._keep(key, CountedUnit(self._count, self, tie, able, left))

    def _keep(self, key: Hashable, unit: Unit) -> Unit:
        self._by_content[key] = unit
        self._count += 1
        return unit


def used_of(amounts: Amounts | Mapping[str, int]) -> Used:
    """What shares consume, in the form of a unit."""
    return tuple(sorted((name, amount) for name, amount in amounts.items()))
