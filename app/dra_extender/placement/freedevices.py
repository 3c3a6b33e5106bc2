"""The free devices of a node as pods need them, whichever devices they are.

Promises: pure. Nodes with equal partition groups, in any order, share one `FreeDevices`, so what it supplies to a need
and what a pod may leave of it are computed once. A need whose requests compete for the same groups is treated as if
each came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple
from weakref import ref

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.api.quantity import ratio
from dra_extender.devices.models import Memo
from dra_extender.placement.partitiongroups import PartitionGroup
from dra_extender.placement.podshape import EVERY, DeviceDemand, Need

MOST_REMAINDERS: Final = 32
"""How many different remainders are compared for a pod; those most in one piece, if there are more."""
REMEMBERED: Final = 1_024
PER_UNIT: Final = 8
"""Groups that are put in order per unit of work."""
SET_BYTES, GROUP_BYTES = 1_024, 16
"""Memory of a set of free devices, and for each of its groups."""


class Supply(NamedTuple):
    """What free devices have for a need. `touch`: how much of them the need selects, in whole groups; `copies`: how
    many pods with this need they could serve, fractions included.
    """

    touch: float
    copies: float


class FreeDevices(Memo):
    """Groups sorted by number. `whole`: how many; `free`: how much of them is left; `unfragmented`: how much of them is
    left in one piece.
    """

    __slots__ = ("_sets", "free", "groups", "memo", "number", "unfragmented", "whole")

    def __init__(self, number: int, groups: tuple[PartitionGroup, ...], sets: FreeDeviceSets) -> None:
        self.number = number
        self.groups = groups
        self.free = sum(group.free for group in groups)
        self.whole = len(groups)
        self.unfragmented = sum(group.unfragmented for group in groups)
        self._sets = sets
        self.memo = {}

    def supply(self, need: Need, budget: WorkBudget) -> Supply | None:
        """None when the need cannot be met. Raises TooCostly and TurnSpent."""
        try:
            found: Supply | None = self.memo[Supply, ref(need)]
        except KeyError:
            found = self.remember((Supply, ref(need)), self._supply(need, budget), REMEMBERED)
        return found

    def _supply(self, need: Need, budget: WorkBudget) -> Supply | None:
        budget.spend(1 + len(need.demands) * len(self.groups) // 8)
        touch, copies = 0.0, float("inf")
        for demand in need.demands:
            for filter, count in demand:
                found = self._supply_of(filter, count, budget)
                if found is not None:
                    touch += found.touch
                    copies = min(copies, found.copies)
                    break
            else:
                return None
        return Supply(touch, copies)

    def _supply_of(self, filter: DeviceFilter, count: int, budget: WorkBudget) -> Supply | None:
        touch, copies, at_once = 0.0, 0, 0
        for group in self.groups:
            rate = group.rate(filter, budget)
            touch += rate.touch
            copies += rate.copies
            at_once += min(rate.copies, 1) if group.once else rate.copies
        if not at_once or at_once < count:
            return None
        return Supply(touch, ratio(copies, count) if count > 0 else 1.0)

    def remainders(self, need: Need, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        """What a pod with this need may leave of it, each once; the same devices when the pod cannot come. Charges each
        device that is taken from each remainder. Raises TooCostly and TurnSpent.
        """
        found: tuple[FreeDevices, ...] | None = self.memo.get((FreeDevices, ref(need)))
        if found is None:
            found = self.remember((FreeDevices, ref(need)), self._remaining(need, budget), REMEMBERED)
        return found

    def _remaining(self, need: Need, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        sets: tuple[FreeDevices, ...] = (self,)
        for demand in need.demands:
            found = {left.number: left for devices in sets for left in devices.after(demand, budget)}
            if not found:
                return (self,)
            sets = tuple(sorted(found.values(), key=lambda left: _fullness((left, ())))[:MOST_REMAINDERS])
        return sets

    def after(self, demand: DeviceDemand, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        """What may be left of it after one request; none when the request cannot be met."""
        for filter, count in demand:
            if self._supply_of(filter, count, budget) is not None:
                return self._all_gone(filter, budget) if count == EVERY else self._some_gone(filter, count, budget)
        return ()

    def _all_gone(self, filter: DeviceFilter, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        groups: list[PartitionGroup] = []
        for group in self.groups:
            left = group
            while rate := left.rate(filter, budget).after:
                left = rate[0]
                if group.once:
                    break
            groups.append(left)
        return (self._sets.of(groups),)

    def _some_gone(self, filter: DeviceFilter, count: int, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        """Device by device. One request takes a device once, so groups it has taken from are kept aside."""
        stages: list[tuple[FreeDevices, tuple[PartitionGroup, ...]]] = [(self, ())]
        for _ in range(count):
            found: dict[tuple[int, tuple[int, ...]], tuple[FreeDevices, tuple[PartitionGroup, ...]]] = {}
            for devices, done in stages:
                for rest, aside in devices._one_gone(filter, budget):
                    both = (*done, *aside)
                    found[rest.number, tuple(sorted(group.number for group in both))] = rest, both
            stages = sorted(found.values(), key=_fullness)[:MOST_REMAINDERS]
        left = {(devices := self._sets.of((*rest.groups, *done))).number: devices for rest, done in stages}
        return tuple(left.values())

    def _one_gone(
        self, filter: DeviceFilter, budget: WorkBudget
    ) -> Iterator[tuple[FreeDevices, tuple[PartitionGroup, ...]]]:
        last = None
        for index, group in enumerate(self.groups):
            if group is last:
                continue
            last = group
            budget.spend(1 + len(self.groups) // PER_UNIT)
            rest = self.groups[:index] + self.groups[index + 1 :]
            for after in group.rate(filter, budget).after:
                if group.once:
                    yield self._sets.of(rest), (after,)
                else:
                    yield self._sets.of((*rest, after)), ()


def _fullness(stage: tuple[FreeDevices, tuple[PartitionGroup, ...]]) -> tuple[float, int]:
    devices, done = stage
    return -devices.unfragmented - sum(group.unfragmented for group in done), devices.number


class FreeDeviceSets:
    """One `FreeDevices` for equal groups. `size`: about how many bytes all take."""

    def __init__(self) -> None:
        self._by_groups: dict[tuple[int, ...], FreeDevices] = {}
        self.size = 0

    def of(self, groups: Iterable[PartitionGroup]) -> FreeDevices:
        """The free devices of these groups, in any order."""
        ordered = tuple(sorted(groups, key=attrgetter("number")))
        key = tuple([group.number for group in ordered])
        found = self._by_groups.get(key)
        if found is None:
            self.size += SET_BYTES + GROUP_BYTES * len(key)
            found = self._by_groups[key] = FreeDevices(len(self._by_groups), ordered, self)
        return found
