"""Counters of partitionable devices, laid out over a node view.

Promises: exact integers. A device fits when enough is left of all counters that it consumes, and no counter of its pool
is overdrawn, including counters that it does not consume; and when it is compatible with the devices in use on its
counter sets. The caller charges and returns; the layout never changes.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (checkAvailableCounters).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.models import CounterID, DeviceModel, Groups, Memo, admits, declared_groups
from dra_extender.devices.pools import NodeView

Charge = tuple[tuple[int, int], ...]
"""What a device consumes: (counter number, nano units)."""

PER_UNIT: Final = 4
"""Devices that are put into a mask per unit of work."""


def charge_of(model: DeviceModel, numbers: Mapping[CounterID, int]) -> Charge:
    """What the device consumes of the counters that have numbers."""
    charge: dict[int, int] = {}
    for name, counter, amount in model.traits.consumes:
        number = numbers.get((name, counter))
        if number is not None:
            charge[number] = charge.get(number, 0) + amount
    return tuple(charge.items())


class CounterLayout(Memo):
    """The counters of all pools of a view, numbered. `charges[device]` is what a consuming device takes;
    `names[number]` is (pool index, counter set, counter), `consumers[number]` who consumes how much of it, the least
    first. Where compatibility groups are in use, `sets[number]` is (pool index, counter set), and `groups[device]` are
    the device's groups on each set, by number.
    """

    def __init__(self, view: NodeView) -> None:
        self.names: list[tuple[int, str, str]] = []
        self.charges: dict[int, Charge] = {}
        self.sets: list[tuple[int, str]] = []
        self.groups: dict[int, tuple[tuple[int, Groups], ...]] = {}
        self._pools: list[tuple[int, range, int]] = []
        for index, pool in enumerate(view.pools):
            if pool.counters:
                self._add_pool(view, index)
        self.consumers: list[list[tuple[int, int]]] = [[] for _ in self.names]
        amounts = [(number, device, amount) for device, charge in self.charges.items() for number, amount in charge]
        for number, device, amount in sorted(amounts, key=itemgetter(2)):
            self.consumers[number].append((device, amount))
        self._amounts = [[amount for _, amount in consumers] for consumers in self.consumers]
        self.memo = {}
        self.size = len(self.names) + len(amounts)
        """Counters, and amounts that devices consume of them."""

    def _add_pool(self, view: NodeView, index: int) -> None:
        first = len(self.names)
        numbers: dict[CounterID, int] = {}
        for set_name, counters in view.pools[index].counters.items():
            for counter in counters:
                numbers[set_name, counter] = len(self.names)
                self.names.append((index, set_name, counter))
        sets: dict[str, int] = {}
        if view.pools[index].groups:
            for set_name in view.pools[index].counters:
                sets[set_name] = len(self.sets)
                self.sets.append((index, set_name))
        mask = 0
        offset = view.offsets[index]
        for position, model in enumerate(view.pools[index].models, offset):
            if model.traits.consumes:
                self.charges[position] = charge_of(model, numbers)
                if sets:
                    own = declared_groups(model.traits)
                    self.groups[position] = tuple((sets[set_name], groups) for set_name, groups in own)
                mask |= 1 << position
        self._pools.append((index, range(first, len(self.names)), mask))

    def left(self, holdings: NodeHoldings) -> list[int]:
        return [holdings.counters[pool][set_name][counter] for pool, set_name, counter in self.names]

    def in_use(self, holdings: NodeHoldings) -> list[Groups | None]:
        """What the devices in use on each set have in common."""
        return [holdings.groups[pool].get(set_name) for pool, set_name in self.sets]

    def is_compatible(self, device: int, in_use: Sequence[Groups | None]) -> bool:
        """Whether the device may join the devices in use on its counter sets."""
        return all(admits(in_use[number], groups) for number, groups in self.groups.get(device, ()))

    def incompatible(self, in_use: Sequence[Groups | None]) -> int:
        if all(groups is None for groups in in_use):
            return 0
        return sum(1 << device for device in self.groups if not self.is_compatible(device, in_use))

    def overdrawn(self, left: Sequence[int]) -> int:
        """The consuming devices of pools in which any counter is below zero."""
        mask = 0
        for _, numbers, consuming in self._pools:
            if any(left[number] < 0 for number in numbers):
                mask |= consuming
        return mask

    def dry(self, left: Sequence[int], charge: Callable[[int], None]) -> int:
        """The devices that want more of some counter than is left. Raises what `charge` does."""
        mask = 0
        for number, amounts in enumerate(self._amounts):
            if amounts and amounts[-1] > left[number]:
                key = number, bisect_right(amounts, left[number])
                found: int | None = self.memo.get(key)
                mask |= found if found is not None else self.remember(key, self._from(*key, charge))
        return mask

    def _from(self, number: int, first: int, charge: Callable[[int], None]) -> int:
        """The consumers of the counter from this one on."""
        charge((len(self.consumers[number]) - first) // PER_UNIT)
        mask = 0
        for device, _ in self.consumers[number][first:]:
            mask |= 1 << device
        return mask


def counter_layout(view: NodeView) -> CounterLayout:
    """The layout of a view, remembered by the view."""
    found: CounterLayout | None = view.memo.get("counters")
    return found if found is not None else view.remember("counters", CounterLayout(view))
