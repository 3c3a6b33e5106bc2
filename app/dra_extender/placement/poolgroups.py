"""Which groups a pool is made of, and which of its devices belong to which group.

Promises: pure. Devices that other nodes have, or whose nodes are unknown, belong to none. Devices linked by counter
sets, directly or through others, are one group; its counters are numbered in the order in which the pool lists them, so
groups that differ in the names of their counter sets only are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.signatures import PoolSignatures
from dra_extender.devices.content import WeakIdentityDict, digest
from dra_extender.devices.holdings import remaining_counters
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import SeenPool
from dra_extender.devices.pools import Pool
from dra_extender.devices.usage import EVERY_DEVICE, NO_AMOUNTS, Amounts, PoolHoldings
from dra_extender.placement.partitiongroups import CounterTie, Partition, PartitionGroup, PartitionGroups, used_of

Counter = tuple[str, str]
"""Counter set and counter."""


class _Linked(NamedTuple):
    """Devices with common counters: per device its name and what it is as a partition."""

    counters: tuple[Counter, ...]
    tie: CounterTie
    devices: tuple[tuple[str, Partition], ...]


class PoolGrouping:
    """The groups of one pool, in its order. `plain`: devices without counters: name, model, and what it counts."""

    __slots__ = ("_groups", "_linked", "_plain", "_pool", "_shares", "_unallocated")

    def __init__(
        self,
        pool: Pool,
        plain: tuple[tuple[str, DeviceModel, float], ...],
        linked: tuple[_Linked, ...],
        groups: PartitionGroups,
        *,
        shares: bool,
    ) -> None:
        self._pool = pool
        self._plain = plain
        self._linked = linked
        self._groups = groups
        self._shares = shares
        self._unallocated = self._of(None)

    def groups(self, held: PoolHoldings | None) -> tuple[PartitionGroup, ...]:
        """The groups when this is held."""
        return self._unallocated if held is None else self._of(held)

    def own_groups(self, held: PoolHoldings | None) -> Mapping[str, PartitionGroup]:
        """The group of each device that is a group of its own, by name, when this is held. Devices with one group leave
        the same when they are taken.
        """
        return {name: group for (name, _, _), group in zip(self._plain, self.groups(held), strict=False)}

    def _of(self, held: PoolHoldings | None) -> tuple[PartitionGroup, ...]:
        owned = held.owned if held is not None else frozenset[str]()
        shared = held.shared if held is not None else {}
        groups = self._groups
        if EVERY_DEVICE in owned:  # an allocation in this pool cannot be read
            plain = [groups.gone(whole) for _, _, whole in self._plain]
            return (*plain, *(groups.gone(linked.tie.whole) for linked in self._linked))
        found: list[PartitionGroup] = []
        for name, model, whole in self._plain:
            used: Amounts | None = shared.get(name)
            several = self._shares and model.traits.multi
            if name in owned or not (several or used is None):
                found.append(groups.gone(whole))
            elif several:
                found.append(groups.shared(model, used_of(used) if used is not None else None, whole))
            else:
                found.append(groups.exclusive(model, None, whole))
        if self._linked:
            left = remaining_counters(self._pool, held)
            for linked in self._linked:
                members = [member for name, member in linked.devices if name not in owned and name not in shared]
                amounts = tuple(left.get(name, NO_AMOUNTS).get(counter, 0) for name, counter in linked.counters)
                found.append(groups.counted(linked.tie, members, amounts))
        return tuple(found)


class PoolGroupings:
    """The groupings of pools. `pools` says which devices have equal signatures."""

    def __init__(self, pools: PoolSignatures, groups: PartitionGroups, *, shares: bool, counters: bool) -> None:
        self._pools = pools
        self._groups = groups
        self._shares = shares
        self._counters = counters
        self._by_pool: WeakIdentityDict[SeenPool, PoolGrouping] = WeakIdentityDict()
        self._stripped: WeakValueDictionary[Hashable, DeviceModel] = WeakValueDictionary()

    def of(self, seen: SeenPool, pool: Pool, budget: WorkBudget) -> PoolGrouping:
        """The grouping of what a node sees; `pool` is what `seen` shows. Raises TurnSpent."""
        known = self._by_pool.get(id(seen))
        return known.value if known is not None else self._by_pool.put(seen, self._grouping(seen, pool, budget))

    def _grouping(self, seen: SeenPool, pool: Pool, budget: WorkBudget) -> PoolGrouping:
        plain: list[tuple[str, DeviceModel, float]] = []
        consuming: list[tuple[str, DeviceModel]] = []
        for name, (model, locality) in zip(pool.names, self._pools.of(seen, pool).devices, strict=True):
            if locality:
                continue
            if self._counters and model.traits.consumes:
                consuming.append((name, model))
            else:
                plain.append((name, model, self._groups.weight(model, budget)))
        linked = tuple(self._link(pool, consuming, budget))
        return PoolGrouping(pool, tuple(plain), linked, self._groups, shares=self._shares)

    def _link(self, pool: Pool, consuming: list[tuple[str, DeviceModel]], budget: WorkBudget) -> Iterable[_Linked]:
        for sets in components(pool, [model for _, model in consuming]):
            counters = tuple(
                (name, counter) for name in pool.counters if name in sets for counter in pool.counters[name]
            )
            numbers = {counter: number for number, counter in enumerate(counters)}
            devices = tuple(
                (device, Partition(self._strip(model), _charge(model, numbers)))
                for device, model in consuming
                if model.traits.consumes[0][0] in sets
            )
            total = tuple(pool.counters[name][counter] for name, counter in counters)
            members = [member for _, member in devices]
            whole = max(self._groups.weight(member.model, budget) for member in members)
            yield _Linked(counters, CounterTie.of(total, whole, members), devices)

    def _strip(self, model: DeviceModel) -> DeviceModel:
        """One for all models that differ only in the counters they consume."""
        without = msgspec.structs.replace(model.traits, consumes=())
        return self._stripped.setdefault(digest(without), model)


def _charge(model: DeviceModel, numbers: dict[Counter, int]) -> tuple[tuple[int, int], ...]:
    charge: dict[int, int] = {}
    for name, counter, amount in model.traits.consumes:
        number = numbers.get((name, counter))
        if number is not None:
            charge[number] = charge.get(number, 0) + amount
    return tuple(charge.items())


def components(pool: Pool, models: Iterable[DeviceModel]) -> list[set[str]]:
    """The counter sets of the pool, those together that some device links. At most the devices times the counter sets,
    once for each version of a pool.
    """
    found: list[set[str]] = []
    for model in models:
        names = {name for name, _, _ in model.traits.consumes}
        touching = [known for known in found if known & names]
        found = [known for known in found if not known & names]
        found.append(names.union(*touching))
    order = {name: number for number, name in enumerate(pool.counters)}
    return sorted(found, key=lambda names: min(order.get(name, len(order)) for name in names))
