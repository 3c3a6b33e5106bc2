"""How the nodes stand: the state of each, brought up to date when it is asked for.

Promises: costs what changed since the last question. `changes` notes every node whose state may have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.signatures import AttributeReads, PoolSignatures
from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import ChangeLog, Nodes, SeenNode
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.usage import PoolHoldings, PoolID, together
from dra_extender.placement.layout import Layouts
from dra_extender.placement.load import Loads, allocatable
from dra_extender.placement.state import State
from dra_extender.placement.stock import Stock, Stocks
from dra_extender.placement.units import Unit, Units

MOST_STOCKS: Final = 100_000
"""When there were so many, all are forgotten."""
_SLIGHTLY: Final = 1e-3
"""Left of CPU and memory even when nothing is: enough for whoever asks for none."""
_UNKNOWN: Final = 1 << 60
"""CPU and memory of a node that does not say what it has."""

Held = Mapping[PoolID, PoolHoldings]


class Standing:
    """See the module. `loads` are fed by others; `weight`: what a device of a model counts."""

    def __init__(
        self,
        nodes: Nodes,
        ledger: Ledger,
        loads: Loads,
        features: FeatureGates,
        weight: Callable[[DeviceModel], float] = lambda model: 1.0,
    ) -> None:
        self.changes = ChangeLog()
        self.epoch = 0
        """Grows when all stocks are forgotten: what was remembered about them is of no use."""
        self._nodes = nodes
        self._ledger = ledger
        self._loads = loads
        self._features = features
        self._weight = weight
        self._budget: WorkBudget = UNLIMITED
        self._position = -1
        self._states: list[State | None] = []
        self._reads: AttributeReads = frozenset()
        self._start()
        loads.changed = self.node_changed

    def take(self, budget: WorkBudget) -> None:
        """From now on selectors are evaluated in this budget."""
        self._budget = self._units.budget = budget

    def start_over(self) -> None:
        """What devices count is different: forget everything."""
        self._start()

    def _start(self) -> None:
        self._units = Units(self._weight, self._budget)
        self._stocks = Stocks()
        features = self._features
        self._layouts = Layouts(
            PoolSignatures(self._reads), self._units,
            shares=features.DRAConsumableCapacity, counters=features.DRAPartitionableDevices,
        )  # fmt: skip
        self.epoch += 1
        self._states = []
        self._position = -1

    def read(self, reads: AttributeReads) -> None:
        """From now on devices are told apart by these attributes as well."""
        wider = None if self._reads is None or reads is None else self._reads | reads
        if wider != self._reads:
            self._reads = wider
            self._start()

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
        if len(self._stocks) > MOST_STOCKS or len(self._units) > MOST_STOCKS:
            self._start()
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
    def budget(self) -> WorkBudget:
        """What selectors are evaluated in."""
        return self._budget

    @property
    def shares(self) -> bool:
        """True when devices can be shared."""
        return self._features.DRAConsumableCapacity

    @property
    def size(self) -> int:
        """One more than the highest index of a node."""
        return len(self._states)

    def state(self, name: str) -> State:
        """The state of a known node."""
        return self.at(self._nodes.index[name])

    def at(self, index: int) -> State:
        """The state of the node with this index."""
        found = self._states[index]
        if found is None:
            seen = self._nodes.by_index[index]
            assert seen is not None, index
            found = self._states[index] = self._state(seen, {})
        return found

    def beside(self, name: str, more: Held) -> State:
        """The state of a known node as if this were held in some of its pools as well."""
        return self._state(self._nodes.seen[name], more)

    def holdings(self, view: NodeView) -> NodeHoldings:
        """What is held on a node."""
        held = {pool.id: found for pool in view.pools if (found := self._ledger.holdings(pool.id)) is not None}
        return NodeHoldings(view, held)

    def view(self, name: str) -> NodeView | None:
        """All pools of a node."""
        return self._nodes.view(name)

    def _state(self, seen: SeenNode, more: Held) -> State:
        self._nodes.current(seen)
        whole, load = allocatable(seen.node), self._loads.on(seen.node.name)
        return State(
            self._stock(seen, more),
            (whole.cpu - load.cpu if whole.cpu else _UNKNOWN) + _SLIGHTLY,
            (whole.memory - load.memory if whole.memory else _UNKNOWN) + _SLIGHTLY,
            whole,
        )

    def _stock(self, seen: SeenNode, more: Held) -> Stock:
        units: list[Unit] = []
        for item in seen.pools:
            pool = item.pool
            if pool is not None and pool.names:
                held = self._ledger.holdings(pool.id)
                if pool.id in more:
                    held = together(held, more[pool.id])
                units += self._layouts.of(item, pool).units(held)
        return self._stocks.of(units)

    def census(self) -> Iterable[tuple[State, int]]:
        """All states and how many nodes are in each."""
        self.catch_up()
        return Counter(self.at(seen.index) for seen in self._nodes.seen.values()).items()
