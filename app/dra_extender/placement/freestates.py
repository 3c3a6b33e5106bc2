"""The free state of each node as policies compare it: its devices, CPU and memory.

Promises: a state is computed when it is asked for, and again only after the node changed. `changes` notes every node
whose state may have changed. Selectors are evaluated in the budget of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.signatures import AttributeReads, PoolSignatures
from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceID
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import ChangeLog, Nodes, SeenNode
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import PoolHoldings, PoolID, together
from dra_extender.placement.freedevices import FreeDevices, FreeDeviceSets
from dra_extender.placement.load import Load, Loads, allocatable
from dra_extender.placement.partitiongroups import PartitionGroup, PartitionGroups
from dra_extender.placement.poolgroups import PoolGroupings

MOST_SETS: Final = 100_000
"""Of free devices, and of groups: when there are more, all are forgotten."""
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


class FreeStates:
    """`loads` are kept up to date by the owner; `weight`: what a device of a model counts."""

    def __init__(
        self,
        nodes: Nodes,
        ledger: Ledger,
        loads: Loads,
        features: FeatureGates,
        weight: Callable[[DeviceModel, WorkBudget], float],
    ) -> None:
        self.changes = ChangeLog()
        self.epoch = 0
        """Grows when all free devices are forgotten, and so what was remembered about them."""
        self._nodes = nodes
        self._ledger = ledger
        self._loads = loads
        self._features = features
        self._weight = weight
        self._position = -1
        self._states: list[NodeFreeState | None] = []
        self._reads: AttributeReads = frozenset()
        self.start_over()
        loads.changed = self.node_changed

    def start_over(self) -> None:
        """Forget everything, because devices count differently from now on."""
        self._groups = PartitionGroups(self._weight)
        self._sets = FreeDeviceSets()
        features = self._features
        self._groupings = PoolGroupings(
            PoolSignatures(self._reads), self._groups,
            shares=features.DRAConsumableCapacity, counters=features.DRAPartitionableDevices,
        )  # fmt: skip
        self.epoch += 1
        self._states = []
        self._position = -1

    def read(self, reads: AttributeReads) -> None:
        """From now on these attributes are part of the signatures of devices."""
        wider = None if self._reads is None or reads is None else self._reads | reads
        if wider != self._reads:
            self._reads = wider
            self.start_over()

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

    def catch_up(self) -> None:
        """Notice what changed. Call it before a series of questions."""
        if len(self._sets) > MOST_SETS or len(self._groups) > MOST_SETS:
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
    def shares(self) -> bool:
        """True when devices can be shared."""
        return self._features.DRAConsumableCapacity

    @property
    def size(self) -> int:
        """One more than the highest index of a node."""
        return len(self._states)

    def state(self, name: str, budget: WorkBudget) -> NodeFreeState:
        """The state of a known node."""
        return self.at(self._nodes.index[name], budget)

    def at(self, index: int, budget: WorkBudget) -> NodeFreeState:
        """The state of the node with this index."""
        found = self._states[index]
        if found is None:
            seen = self._nodes.by_index[index]
            assert seen is not None, index
            found = self._states[index] = self._state(seen, {}, budget)
        return found

    def beside(self, name: str, more: Held, budget: WorkBudget) -> NodeFreeState:
        """The state of a known node as if this were held in some of its pools as well."""
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

    def holdings(self, view: NodeView) -> NodeHoldings:
        """What is held on a node."""
        held = {pool.id: found for pool in view.pools if (found := self._ledger.holdings(pool.id)) is not None}
        return NodeHoldings(view, held)

    def view(self, name: str) -> NodeView | None:
        """All pools of a node."""
        return self._nodes.view(name)

    def _state(self, seen: SeenNode, more: Held, budget: WorkBudget) -> NodeFreeState:
        self._nodes.current(seen)
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
                held = self._ledger.holdings(pool.id)
                if pool.id in more:
                    held = together(held, more[pool.id])
                groups += self._groupings.of(item, pool, budget).groups(held)
        return self._sets.of(groups)

    def by_state(self, budget: WorkBudget) -> Iterable[tuple[NodeFreeState, int]]:
        """All states and how many nodes are in each. One look-up for each node; a state that has changed is charged."""
        self.catch_up()
        return Counter(self.at(seen.index, budget) for seen in self._nodes.seen.values()).items()
