"""The free state of each node as policies compare it: its devices, CPU and memory; and the groups of each pool.

Promises: a state is computed when it is asked for, and again only after the node changed. `changes` notes every node
whose state may have changed.

`PoolGrouping` says which devices of a pool belong to which group. Devices that other nodes have, or whose nodes are
unknown, belong to none. Devices linked by counter sets, directly or through others, are one group; its counters are
numbered in the order in which the pool lists them, so groups that differ in the names of their counter sets only are
equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.counters import charge_of
from dra_extender.allocation.signatures import DOMAIN, AttributeReads, PoolSignatures
from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceAttribute, DeviceID
from dra_extender.devices.changelog import ChangeLog
from dra_extender.devices.content import WeakIdentityDict, digest
from dra_extender.devices.holdings import NodeHoldings, remaining_counters
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.models import CounterID, DeviceModel
from dra_extender.devices.nodes import Nodes, SeenNode, SeenPool
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.usage import EVERY_DEVICE, NO_AMOUNTS, Amounts, PoolHoldings, PoolID, together
from dra_extender.limits import VALUES_OF_ATTRIBUTE
from dra_extender.placement.freedevices import FreeDevices, FreeDeviceSets
from dra_extender.placement.partitiongroups import CounterTie, Partition, PartitionGroup, PartitionGroups
from dra_extender.placement.podshape import Load, Loads, PodShape, allocatable

Values = dict[tuple[str, str], set[DeviceAttribute]]
"""The values that devices have published, by the keys of `AttributeReads`. An attribute with too many has some."""


class _Linked(NamedTuple):
    """Devices with common counters: per device its name and what it is as a partition."""

    counters: tuple[CounterID, ...]
    tie: CounterTie
    devices: tuple[tuple[str, Partition], ...]


@dataclass(slots=True, eq=False)
class PoolGrouping:
    """The groups of one pool, in its order. `_plain`: the names and models of devices without counters."""

    _pool: Pool
    _plain: tuple[tuple[str, DeviceModel], ...]
    _linked: tuple[_Linked, ...]
    _groups: PartitionGroups
    _shares: bool
    _unallocated: tuple[PartitionGroup, ...] = ()

    def __post_init__(self) -> None:
        self._unallocated = self._of(None)

    def groups(self, held: PoolHoldings | None) -> tuple[PartitionGroup, ...]:
        """The groups when this is held."""
        return self._unallocated if held is None else self._of(held)

    def own_groups(self, held: PoolHoldings | None) -> Mapping[str, PartitionGroup]:
        """The group of each device that is a group of its own, by name, when this is held. Devices with one group leave
        the same when they are taken.
        """
        return {name: group for (name, _), group in zip(self._plain, self.groups(held), strict=False)}

    def _of(self, held: PoolHoldings | None) -> tuple[PartitionGroup, ...]:
        owned = held.owned if held is not None else frozenset[str]()
        shared = held.shared if held is not None else {}
        groups = self._groups
        if EVERY_DEVICE in owned:  # an allocation in this pool cannot be read
            return (groups.gone(),) * (len(self._plain) + len(self._linked))
        found: list[PartitionGroup] = []
        for name, model in self._plain:
            used: Amounts | None = shared.get(name)
            several = self._shares and model.traits.multi
            if name in owned or not (several or used is None):
                found.append(groups.gone())
            else:
                found.append(groups.device(model, used, shared=several))
        if self._linked:
            left = remaining_counters(self._pool, held)
            for linked in self._linked:
                members = [member for name, member in linked.devices if name not in owned and name not in shared]
                amounts = tuple(left.get(name, NO_AMOUNTS).get(counter, 0) for name, counter in linked.counters)
                found.append(groups.counted(linked.tie, members, amounts))
        return tuple(found)


@dataclass(slots=True, eq=False)
class PoolGroupings:
    """The groupings of pools. `pools` says which devices have equal signatures. It adds what it sees to `values`."""

    _pools: PoolSignatures
    _values: Values
    _groups: PartitionGroups
    _shares: bool
    _counters: bool
    _by_pool: WeakIdentityDict[SeenPool, PoolGrouping] = field(default_factory=WeakIdentityDict)
    _stripped: WeakValueDictionary[Hashable, DeviceModel] = field(default_factory=WeakValueDictionary)

    def of(self, seen: SeenPool, pool: Pool, budget: WorkBudget) -> PoolGrouping:
        """The grouping of what a node sees; `pool` is what `seen` shows. Raises TurnSpent."""
        known = self._by_pool.get(id(seen))
        return known.value if known is not None else self._by_pool.put(seen, self._grouping(seen, pool, budget))

    def _grouping(self, seen: SeenPool, pool: Pool, budget: WorkBudget) -> PoolGrouping:
        plain: list[tuple[str, DeviceModel]] = []
        consuming: list[tuple[str, DeviceModel]] = []
        budget.spend(2 * len(pool.names))
        self._note(pool)
        for name, (model, locality) in zip(pool.names, self._pools.of(seen, pool, budget).devices, strict=True):
            if not locality:
                (consuming if self._counters and model.traits.consumes else plain).append((name, model))
        linked = tuple(self._link(pool, consuming))
        return PoolGrouping(pool, tuple(plain), linked, self._groups, self._shares)

    def _note(self, pool: Pool) -> None:
        for name, value in {item for model in pool.models for item in model.traits.attributes.items()}:
            domain, _, identifier = name.rpartition("/")
            self._values.setdefault((DOMAIN, domain or pool.id[0]), set())
            values = self._values.setdefault((domain or pool.id[0], identifier), set())
            if len(values) <= VALUES_OF_ATTRIBUTE:
                values.add(value)

    def _link(self, pool: Pool, consuming: list[tuple[str, DeviceModel]]) -> Iterable[_Linked]:
        numbers = components(pool, [model for _, model in consuming])
        counters: list[list[CounterID]] = [[] for _ in set(numbers.values())]
        devices: list[list[tuple[str, Partition]]] = [[] for _ in counters]
        for name, number in numbers.items():
            counters[number] += [(name, counter) for counter in pool.counters.get(name, ())]
        places = {counter: place for own in counters for place, counter in enumerate(own)}
        for name, model in consuming:
            alike = digest(msgspec.structs.replace(model.traits, consumes=()))  # except for the counters they consume
            member = Partition(self._stripped.setdefault(alike, model), charge_of(model, places))
            devices[numbers[model.traits.consumes[0][0]]].append((name, member))
        for own, linked in zip(counters, devices, strict=True):
            total = tuple(pool.counters[name][counter] for name, counter in own)
            yield _Linked(tuple(own), CounterTie.of(total, [member for _, member in linked]), tuple(linked))


def components(pool: Pool, models: Iterable[DeviceModel]) -> dict[str, int]:
    """The counter sets that devices consume, in the order of the pool. Sets that some device links have one number."""
    found: dict[str, set[str]] = {}
    for model in models:
        names = dict.fromkeys([name for name, _, _ in model.traits.consumes])
        largest = max([found.setdefault(name, {name}) for name in names], key=len)
        for name in names:
            if (other := found[name]) is not largest:
                largest |= other
                found.update(dict.fromkeys(other, largest))
    numbers: dict[int, int] = {}
    order = [name for name in (*pool.counters, *found) if name in found]
    return {name: numbers.setdefault(id(found[name]), len(numbers)) for name in order}


MOST_BYTES: Final = 110 * 2**20
"""Of sets of free devices: 100,000 of nodes with eight devices. When they take more, all are forgotten;"""
MOST_GROUPS: Final = 100_000
"""or when there are more groups."""
MOST_READS: Final = 64
"""Attributes that one filter may read. When `FreeStates` has more, it drops reads that match no published attribute."""
PER_UNIT: Final = 4
"""Devices of a node that are put into groups per unit of work."""
_SLIGHTLY: Final = 1e-3
"""Left of CPU and memory even when nothing is: enough for pods that ask for none."""
_UNKNOWN: Final = 1 << 60
"""CPU and memory of a node that does not say what it has."""

Held = Mapping[PoolID, PoolHoldings]


class NodeFreeState(NamedTuple):
    """`cpu` and `memory` are what is left, in millicores and bytes; `whole` is what the node has."""

    devices: FreeDevices
    cpu: float
    memory: float
    whole: Load

    def after(self, devices: FreeDevices, load: Load | PodShape) -> NodeFreeState:
        """The state when these devices are left, and a pod with this load has come."""
        return NodeFreeState(devices, self.cpu - load.cpu, self.memory - load.memory, self.whole)


class FreeStates:
    """`loads` are kept up to date by the owner."""

    def __init__(self, nodes: Nodes, ledger: Ledger, loads: Loads, features: FeatureGates) -> None:
        self.changes = ChangeLog[int]()
        self.shares = features.DRAConsumableCapacity
        """True when devices can be shared."""
        self.epoch = 0
        """Grows when all free devices are forgotten, and so what was remembered about them."""
        self._nodes = nodes
        self._ledger = ledger
        self._loads = loads
        self._features = features
        self._reads: frozenset[tuple[str, str]] = frozenset()
        self._values: Values = {}
        self.start_over()
        loads.changed = self.node_changed

    def start_over(self) -> None:
        self._groups = PartitionGroups()
        self._sets = FreeDeviceSets()
        self._pools = PoolSignatures(self._reads)
        counters = self._features.DRAPartitionableDevices
        self._groupings = PoolGroupings(self._pools, self._values, self._groups, self.shares, counters)
        self.epoch += 1
        self._states: list[NodeFreeState | None] = []
        self._position = -1

    def read(self, reads: AttributeReads, budget: WorkBudget) -> bool:
        """From now on these attributes are part of the signatures of devices. False when there are too many of them, or
        one has too many values: then they are not. Raises TurnSpent.
        """
        if reads is None or len(reads) > MOST_READS or not all(self._has_few_values(read, budget) for read in reads):
            return False
        if more := reads - self._reads:
            kept = self._reads if len(self._reads) < MOST_READS else self._reads & self._values.keys()
            self._reads = kept | reads
            self._pools.widen(self._reads)
            if more & self._values.keys():
                self.start_over()
        return True

    def _has_few_values(self, read: tuple[str, str], budget: WorkBudget) -> bool:
        """Whether devices have few values of the attribute. Raises TurnSpent."""
        if len(self._values.get(read, ())) > VALUES_OF_ATTRIBUTE:
            budget.spend(0)
            self._values[read] = self._present_values(*read, budget)
        return len(self._values.get(read, ())) <= VALUES_OF_ATTRIBUTE

    def _present_values(self, domain: str, identifier: str, budget: WorkBudget) -> set[DeviceAttribute]:
        """The values that devices have now, or some if there are too many. Charges them afterwards: a question that
        stops halfway would leave the next one where it began.
        """
        looked, values = len(self._nodes), set[DeviceAttribute]()
        pools = (item.pool for seen in self._nodes.seen.values() for item in seen.pools if item.pool is not None)
        for pool in dict.fromkeys(pools):
            names = (f"{domain}/{identifier}", identifier) if pool.id[0] == domain else (f"{domain}/{identifier}",)
            published = [model.traits.attributes for model in pool.models]
            values.update([found[name] for name in names for found in published if name in found])
            looked += len(published)
            if len(values) > VALUES_OF_ATTRIBUTE:
                break
        budget.spend(looked // PER_UNIT)
        return values

    def node_seen(self, node: Node) -> None:
        """A version of a node. Most differ in their heartbeat only."""
        index = self._nodes.index.get(node.name)
        known = self._states[index] if index is not None and index < len(self._states) else None
        if known is not None and known.whole != allocatable(node):
            self.node_changed(node.name)

    def node_changed(self, name: str) -> None:
        """What the node has, or what its pods ask for, is different."""
        index = self._nodes.index.get(name)
        if index is not None and index < len(self._states):
            self._states[index] = None
            self.changes.note(index)

    def catch_up(self, budget: WorkBudget) -> None:
        """Notice what changed. Call it before a series of questions. Raises TurnSpent."""
        reads = frozenset(read for read in self._reads if self._has_few_values(read, budget))
        if reads != self._reads or self._sets.size > MOST_BYTES or len(self._groups) > MOST_GROUPS:
            self._reads = reads
            self.start_over()
        noted = self._nodes.changes.since(self._position)
        wanted = len(self._nodes.by_index)
        if noted is None:
            self._states = [None] * wanted
            self.changes.note_all()
        else:
            self._states.extend([None] * (wanted - len(self._states)))
            for index in noted:
                self._states[index] = None
                self.changes.note(index)
        self._position = self._nodes.changes.position

    @property
    def size(self) -> int:
        """One more than the highest index of a node."""
        return len(self._states)

    def at(self, index: int, budget: WorkBudget) -> NodeFreeState:
        """The state of the node with this index. Charges its devices when it is unknown. Raises TurnSpent."""
        found = self._states[index]
        if found is None:
            seen = self._nodes.by_index[index]
            assert seen is not None, index
            found = self._states[index] = self._state(seen, {}, budget)
        return found

    def beside(self, name: str, more: Held, budget: WorkBudget) -> NodeFreeState:
        """The state of a known node as if this were held in some of its pools as well. Raises TurnSpent."""
        return self._state(self._nodes.seen[name], more, budget)

    def own_groups(self, name: str, budget: WorkBudget) -> Mapping[DeviceID, PartitionGroup]:
        """The group of each device of a known node that is a group of its own. Linear in the devices."""
        found: dict[DeviceID, PartitionGroup] = {}
        for item in self._nodes.seen[name].pools:
            pool = item.pool
            if pool is not None and pool.names:
                groups = self._groupings.of(item, pool, budget).own_groups(self._ledger.holdings(pool.id))
                found |= {(*pool.id, device): group for device, group in groups.items()}
        return found

    def view(self, name: str) -> tuple[NodeView, NodeHoldings]:
        """All pools of a known node, and what is held there."""
        view = self._nodes.view(name)
        assert view is not None, name
        held = {pool.id: found for pool in view.pools if (found := self._ledger.holdings(pool.id)) is not None}
        return view, NodeHoldings(view, held)

    def _state(self, seen: SeenNode, more: Held, budget: WorkBudget) -> NodeFreeState:
        for units in self._nodes.refresh(seen):
            budget.spend(units)
        whole, load = allocatable(seen.node), self._loads.on(seen.node.name)
        return NodeFreeState(
            self._devices(seen, more, budget),
            (whole.cpu - load.cpu if whole.cpu else _UNKNOWN) + _SLIGHTLY,
            (whole.memory - load.memory if whole.memory else _UNKNOWN) + _SLIGHTLY,
            whole,
        )

    def _devices(self, seen: SeenNode, more: Held, budget: WorkBudget) -> FreeDevices:
        groups: list[PartitionGroup] = []
        for item in seen.pools:
            pool = item.pool
            if pool is not None and pool.names:
                budget.spend(1 + len(pool.names) // PER_UNIT)
                held = self._ledger.holdings(pool.id)
                if pool.id in more:
                    held = together(held, more[pool.id])
                groups += self._groupings.of(item, pool, budget).groups(held)
        return self._sets.of(groups)

    def by_state(self, budget: WorkBudget) -> Iterable[tuple[NodeFreeState, int]]:
        """All states and how many nodes are in each. One look-up for each node. Raises TurnSpent."""
        self.catch_up(budget)
        return Counter(self.at(seen.index, budget) for seen in self._nodes.seen.values()).items()
