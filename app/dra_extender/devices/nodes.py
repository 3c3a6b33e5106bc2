"""The pools that each node sees, in search order. They are computed on demand and kept until a slice or label changes.

Promises: a node sees at most `DEVICES_OF_NODE` devices, and evaluates no pool that `NodeSelectorLimit` refuses. A
node's own slices change that node only; open slices are evaluated for each node, and nodes with the same outcome share
one pool. Open slices of a pool that are all for all nodes are evaluated once. `changes` has every node on which the
result for a claim may have changed. Indexes of nodes are small numbers; the index of a removed node is used again.

If the open slices of a pool have only counters, nodes without own slices in the pool have no devices of it. They do not
see it, unless it is incomplete or invalid: then requests for all devices fail on every node (Kubernetes 1.36,
structured/internal/incubating/pools_incubating.go).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.devices.assembly import GatherError, gather_pool, is_for_all, is_of_counters
from dra_extender.devices.changelog import ChangeLog
from dra_extender.devices.holdings import PoolState
from dra_extender.devices.nodeselection import NodeSelectorLimit
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import PoolID
from dra_extender.devices.validity import TOO_MANY, TOO_SELECTIVE
from dra_extender.limits import DEVICES_OF_NODE

KEPT_VIEWS = 512
HYPOTHETICAL = -1
"""The index of a hypothetical node."""
NODE_WORK: Final = 50
"""Units of work that a node costs apart from its pools."""
CHANGED_POOLS: Final = 1_024
"""So many changed pools are remembered for nodes; a node that has missed more looks at all pools again."""

Visible = tuple[Hashable, ...]
"""What a node sees of a pool: the names of its own slices, which open slices it sees, and whether it can skip
operations of the kubelet.
"""


@dataclass(eq=False, slots=True, weakref_slot=True)
class SeenPool:
    """A pool as one or more nodes see it, or the error in its node selection."""

    pool: Pool | None
    error: str = ""
    revision: int = -1
    """The revision of the ledger that `state` was computed from."""
    state: PoolState | None = None


_Ordered = tuple[tuple[bool, PoolID], SeenPool]


@dataclass(eq=False, slots=True)
class SeenNode:
    """A node and its pools in search order. `error`: why its slices cannot be evaluated; then `pools` is empty.

    `found`: its pools by ID, except those in `alike`, which all nodes have. To be computed again: the pools in `stale`,
    and those in the log of changed pools after `position`.
    """

    index: int
    node: Node
    pools: tuple[SeenPool, ...] = ()
    error: str = ""
    found: dict[PoolID, SeenPool] = field(default_factory=dict)
    alike: Container[PoolID] = ()
    stale: dict[PoolID, None] = field(default_factory=dict)
    position: int = -1


class Nodes(Mapping[str, Node]):
    """The known nodes and the pools that they see. Only the inventory changes them."""

    def __init__(self, features: FeatureGates, pool_of: Callable[[PoolID], PublishedPool | None]) -> None:
        self.changes = ChangeLog[int]()
        self.changed_pools = ChangeLog[PoolID](CHANGED_POOLS)
        self._features = features
        self._pool_of = pool_of
        self.seen: dict[str, SeenNode] = {}
        """The nodes by name; `current` brings one up to date. Read only, as the next two."""
        self.by_index: list[SeenNode | None] = []
        """The nodes by index; None where an index is not in use."""
        self.index: dict[str, int] = {}
        """The index of each node."""
        self._spare: list[int] = []
        self._own: dict[str, dict[PoolID, None]] = {}
        self._open: dict[PoolID, set[int]] = {}
        self.selector_limit = NodeSelectorLimit()
        self._alike: dict[PoolID, None] = {}
        """Pools of which all nodes without own slices see the same."""
        self._deviceless: dict[PoolID, _Ordered] = {}
        self._shared: dict[PoolID, _Ordered] | None = None
        """What nodes without own slices see of the pools in `_alike` and `_deviceless`, in search order."""
        self._computed: set[PoolID] = set()
        """Pools computed for some node since their last change. All other pools are stale on every node."""
        self._seen_pools: dict[PoolID, WeakValueDictionary[Visible, SeenPool]] = {}
        self._gathered = 0  # units of work: one for a slice, and for four devices; and those for taints
        self._views: LRUCache[str, NodeView] = LRUCache(KEPT_VIEWS)

    def __getitem__(self, name: str) -> Node:
        return self.seen[name].node

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)

    def __contains__(self, name: object) -> bool:
        return name in self.seen

    def put(self, node: Node) -> bool:
        """Add or replace a node. True when a pod that was refused may fit now."""
        seen = self.seen.get(node.name)
        if seen is None:
            index = self._spare.pop() if self._spare else len(self.by_index)
            seen = SeenNode(index, node)
            if index == len(self.by_index):
                self.by_index.append(seen)
            else:
                self.by_index[index] = seen
            self.seen[node.name] = seen
            self.index[node.name] = index
            self.changes.note(index)
            return True
        before, seen.node = seen.node, node
        if (before.metadata.labels, before.may_skip_operations) != (node.metadata.labels, node.may_skip_operations):
            seen.position = -1
            self._views.pop(node.name, None)
            self.changes.note(seen.index)
            return True
        return before.spec != node.spec or before.status != node.status

    def drop(self, name: str) -> bool:
        """Remove a node. Returns False, because no refused pod fits for that reason."""
        seen = self.seen.pop(name, None)
        if seen is not None:
            self.by_index[seen.index] = None
            del self.index[name]
            self._spare.append(seen.index)
            self._views.pop(name, None)
            for seeing in self._open.values():
                seeing.discard(seen.index)
            self.changes.note(seen.index)
        return False

    def pool_changed(self, pool: PoolID, *nodes: str | None) -> Collection[PoolID]:
        """Slices of the pool changed; of these nodes, own slices were added or removed. Returns the pools to check."""
        published = self._pool_of(pool)
        own = published.own_nodes() if published else frozenset[str]()
        for name in nodes:
            if name is not None and name in own:
                self._own.setdefault(name, {})[pool] = None
            elif name is not None and pool in self._own.get(name, ()):
                del self._own[name][pool]
                if not self._own[name]:
                    del self._own[name]
        self._seen_pools.pop(pool, None)
        is_open, was_deviceless = pool in self._open or pool in self._alike, self._deviceless.get(pool)
        self._open.pop(pool, None)
        self._alike.pop(pool, None)
        size = 0
        open_slices = published.open_slices() if published is not None else ()
        if published is not None and not all(is_of_counters(item, self._features) for item in open_slices):
            if all(is_for_all(item, self._features) for item in open_slices):
                self._alike[pool] = None
            else:
                self._open[pool], size = set(), published.visibility_size
            published, is_open = None, True
        deviceless = self._without_devices(published, was_deviceless) if published is not None else None
        if deviceless is None:
            self._deviceless.pop(pool, None)
        elif deviceless is not was_deviceless:
            self._deviceless[pool] = deviceless
        changed = {pool}
        if is_open or deviceless is not was_deviceless:
            changed |= self.selector_limit.change(pool, size)
            self._shared = None
            for each in changed:
                self.changed_pools.note(each)
            self._views.clear()
            self.changes.note_all()
        else:
            for names in (own if pool in self._computed else (), nodes):
                for name in names:
                    known = self.seen.get(name or "")
                    if known is not None and pool not in known.stale:
                        known.stale[pool] = None
                        if len(known.stale) > CHANGED_POOLS:
                            known.stale, known.position = {}, -1
                        self._views.pop(known.node.name, None)
                        self.changes.note(known.index)
            self._computed.discard(pool)
        return changed

    def _without_devices(self, published: PublishedPool, before: _Ordered | None) -> _Ordered | None:
        """The incomplete or invalid pool as nodes without devices in it see it, or None: the same as `before` unless
        they see a difference.
        """
        if not published.open_slices():
            return None
        pool = self._gather(published, _NO_NODE).pool
        if pool is None or not (pool.incomplete or pool.invalid):
            return None
        known = before[1].pool if before is not None else None
        same = known is not None and (known.invalid, known.problem) == (pool.invalid, pool.problem)
        return before if same else (pool.order, SeenPool(pool))

    def own_pools(self, name: str) -> Iterable[PoolID]:
        return self._own.get(name, {})

    def pools_seen(self, name: str) -> Iterable[PoolID]:
        """The pools that the node sees; none for an unknown node."""
        if name not in self.seen:
            return ()
        own, shared = self._own.get(name, {}), self._in_order()
        alike = (pool for pool in self._alike if pool in shared and pool not in own)
        return [*self.current(self.seen[name]).found, *alike]

    def use_changed(self, pool: PoolID) -> None:
        """Devices of the pool were allocated or released."""
        seeing = self._open.get(pool)
        if pool in self._alike or (seeing is not None and 2 * len(seeing) > len(self.seen)):
            self.changes.note_all()
        else:
            for index in seeing if seeing is not None else [self.index[name] for name in self.seeing(pool)]:
                self.changes.note(index)

    def seeing(self, pool: PoolID) -> Iterator[str]:
        """The known nodes that see the pool. Nodes that see only its open slices count unless they are stale."""
        if pool in self._alike:
            shared, nodes = pool in self._in_order(), self.seen.items()
            yield from (n for n, seen in nodes if pool in seen.found or (shared and pool not in self._own.get(n, ())))
            return
        indexes = self._open.get(pool)
        if indexes is not None:
            yield from (seen.node.name for index in indexes if (seen := self.by_index[index]) is not None)
            return
        published = self._pool_of(pool)
        yield from (name for name in (published.own_nodes() if published else ()) if name in self.seen)

    def is_current(self, seen: SeenNode) -> bool:
        return not seen.stale and seen.position >= self.changed_pools.position

    def current(self, seen: SeenNode) -> SeenNode:
        for _ in self.refresh(seen):
            pass
        return seen

    def refresh(self, seen: SeenNode) -> Iterator[int]:
        """Bring the node up to date, one pool at a step. Slices and nodes may change between steps. Yields units of
        work: before a pool those for its selectors, and after it those for its devices, if no node has seen them yet.
        """
        owed, name, refused = 0, seen.node.name, self.selector_limit.refused
        while not self.is_current(seen):
            if seen.position != self.changed_pools.position:
                changed = self.changed_pools.since(seen.position)
                if changed is None:
                    seen.found.clear()
                    changed = *self._own.get(name, ()), *self._open
                seen.stale.update(dict.fromkeys(changed))
                seen.position = self.changed_pools.position
            gathered = self._gathered
            if seen.stale:
                pool, _ = seen.stale.popitem()
                published = self._pool_of(pool) if pool in self._open and pool not in refused else None
                if work := owed + (3 + published.visibility_work if published is not None else 0):
                    seen.stale[pool] = None  # until it has been looked at
                    yield work
                    if self.seen.get(name) is not seen:
                        return
                    owed = 0
                    if pool not in seen.stale:
                        continue
                    del seen.stale[pool]
                gathered = self._gathered
                self._look(pool, seen)
            if not seen.stale:
                self._sort(seen, self._own.get(name, ()))
            owed = self._gathered - gathered
        if owed:
            yield owed

    def refresh_all(self) -> Iterator[int]:
        """Bring all nodes up to date before a decision needs them; steps and units as those of `refresh`."""
        for name in list(self.seen):
            yield NODE_WORK
            if (seen := self.seen.get(name)) is not None:
                yield from self.refresh(seen)

    def view(self, name: str) -> NodeView | None:
        """All pools of the node; None when the node is not known."""
        view = self._views.get(name)
        seen = self.seen.get(name)
        if view is None and seen is not None:
            self.current(seen)
            pools = [item.pool for item in seen.pools if item.pool is not None]
            view = self._views[name] = NodeView(name, pools, seen.error)
        return view

    def _look(self, pool: PoolID, seen: SeenNode) -> None:
        seeing = self._open.get(pool)
        seen.found.pop(pool, None)
        if seeing is None and pool not in self._own.get(seen.node.name, ()):
            return
        self._computed.add(pool)
        seen_pool = self._see(pool, seen.node)
        sees = seen_pool.pool is not None or bool(seen_pool.error)
        if sees:
            seen.found[pool] = seen_pool
        if seeing is not None:
            (seeing.add if sees else seeing.discard)(seen.index)

    def would_see(self, node: Node, own: Mapping[PoolID, PublishedPool]) -> SeenNode:
        """What a hypothetical node sees: open slices, and the pools in `own`, which have all slices of the pool and the
        node's own. Nothing is cached.
        """
        seen = SeenNode(HYPOTHETICAL, node, position=1 << 62)
        for pool in {**own, **self._open}:
            published = own.get(pool) or self._pool_of(pool)
            assert published is not None, pool
            seen_pool = self._gather(published, node)
            if seen_pool.pool is not None or seen_pool.error:
                seen.found[pool] = seen_pool
        self._sort(seen, own)
        return seen

    def _sort(self, seen: SeenNode, own: Container[PoolID]) -> None:
        """Put the pools of the node in search order."""
        found = [(item.pool.order, item) for item in seen.found.values() if item.pool is not None]
        found += [item for pool, item in self._in_order().items() if pool not in own]
        found.sort(key=itemgetter(0))
        if sum(len(item.pool.names) for _, item in found if item.pool is not None) > DEVICES_OF_NODE:
            found = list(_within_limit(found))
        errors = [(pool, item.error) for pool, item in seen.found.items() if item.error]
        seen.error = min(errors)[1] if errors else ""
        seen.pools, seen.alike = () if seen.error else tuple([item for _, item in found]), self._alike

    def _in_order(self) -> dict[PoolID, _Ordered]:
        if self._shared is None:
            found = dict(self._deviceless)
            for pool in self._alike:
                if (item := self._see(pool, _NO_NODE)).pool is not None:
                    found[pool] = item.pool.order, item
            self._shared = dict(sorted(found.items(), key=lambda item: item[1][0]))
        return self._shared

    def _see(self, pool: PoolID, node: Node) -> SeenPool:
        published = self._pool_of(pool)
        assert published is not None, pool
        name, labels = node.name, node.metadata.labels
        own = published.own_names(name)
        if pool in self.selector_limit.refused or not published.visibilities:
            return self._gather(published, node)  # no other node sees these slices
        visible = own, node.may_skip_operations, *[visibility(name, labels) for visibility in published.visibilities]
        known = self._seen_pools.setdefault(pool, WeakValueDictionary())
        seen_pool = known.get(visible)
        if seen_pool is None:
            seen_pool = known[visible] = self._gather(published, node)
        return seen_pool

    def _gather(self, published: PublishedPool, node: Node) -> SeenPool:
        before = published.taint_work
        slices = published.slices_for(node.name)
        devices = sum([len(item.spec.devices) for item in slices])
        self._gathered += len(slices) + devices // 4 + published.taint_work - before
        if published.id in self.selector_limit.refused:
            return SeenPool(Pool(published.id, invalid=TOO_SELECTIVE))
        try:
            pool = gather_pool(published, slices, node, self._features)
        except GatherError as problem:
            return SeenPool(None, str(problem))
        return SeenPool(pool) if pool is not None else _UNSEEN


_UNSEEN: Final = SeenPool(None)
_NO_NODE: Final = Node(ObjectMeta())


def _within_limit(found: Iterable[_Ordered]) -> Iterator[_Ordered]:
    """The pools, invalid where the node would see too many devices."""
    devices = 0
    for order, item in found:
        devices += (number := len(item.pool.names) if item.pool is not None else 0)
        if number and devices > DEVICES_OF_NODE:
            pool = Pool(order[1], invalid=TOO_MANY)
            yield pool.order, SeenPool(pool)
        else:
            yield order, item
