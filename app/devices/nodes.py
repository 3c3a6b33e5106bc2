"""What each node sees: its pools in search order, built when asked for and kept until something it is made of changes.

Promises: a node's own slices touch that node only; slices open to all nodes are evaluated per node, and nodes for
which the outcome is the same share one pool. `changes` notes every node whose answer to any claim may have changed.
Indexes of nodes are small numbers that are used again after a node is gone.

A pool of which a node sees only the shared counters has no devices there. Such pools are left out, unless they are
incomplete or invalid: then every node has to know, because requests for all devices fail (Kubernetes 1.36,
structured/internal/incubating/pools_incubating.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cachetools import LRUCache

from app.api.core import Node
from app.api.features import FeatureGates
from app.api.resource import Device, ResourceSlice
from app.devices.catalogue import PublishedPool, own_node
from app.devices.changes import ChangeLog
from app.devices.models import DeviceModel
from app.devices.nodeselector import NodeSelectorError
from app.devices.pools import GatherError, NodeSelection, NodeView, Pool, gather_pool
from app.devices.poolstate import PoolState
from app.devices.usage import PoolID

KEPT_VIEWS = 512

Outlook = tuple[Any, ...]
"""What decides how a node sees a pool: for each slice whether, or for which devices, it matches."""


class Sight:
    """A pool as one or more nodes see it, or the error that keeps them from seeing it."""

    __slots__ = ("error", "pool", "revision", "state")

    def __init__(self, pool: Pool | None, error: str = "") -> None:
        self.pool = pool
        self.error = error
        self.revision = -1
        """That of the ledger which `state` was made of."""
        self.state: PoolState | None = None


class SeenNode:
    """A node and its pools in search order. `error`: why its slices cannot be evaluated; then `sights` is empty."""

    __slots__ = ("error", "index", "node", "sights", "stale")

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.node = node
        self.sights: tuple[Sight, ...] = ()
        self.error = ""
        self.stale = True


class Nodes(Mapping[str, Node]):
    """The known nodes and what they see. Changed by the inventory only."""

    def __init__(self, features: FeatureGates, pool_of: Callable[[PoolID], PublishedPool | None]) -> None:
        self.changes = ChangeLog()
        self._features = features
        self._pool_of = pool_of
        self._seen: dict[str, SeenNode] = {}
        self._by_index: list[SeenNode | None] = []
        self.index: dict[str, int] = {}
        """The index of each node. Read only."""
        self._spare: list[int] = []
        self._own: dict[str, dict[PoolID, None]] = {}
        self._open: dict[PoolID, None] = {}
        self._ghosts: dict[PoolID, Sight] = {}
        self._sights: dict[PoolID, dict[Outlook, Sight]] = {}
        self._views: LRUCache[str, NodeView] = LRUCache(KEPT_VIEWS)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Node:
        return self._seen[name].node

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, name: object) -> bool:
        return name in self._seen

    @property
    def seen(self) -> Mapping[str, SeenNode]:
        """The nodes by name; ask `current` before looking at what one sees."""
        return self._seen

    @property
    def by_index(self) -> list[SeenNode | None]:
        """The nodes by index; None where an index is not in use."""
        return self._by_index

    def put(self, node: Node) -> bool:
        """Add or replace a node. True when a pod that was refused may fit now."""
        seen = self._seen.get(node.name)
        if seen is None:
            index = self._spare.pop() if self._spare else len(self._by_index)
            seen = SeenNode(index, node)
            if index == len(self._by_index):
                self._by_index.append(seen)
            else:
                self._by_index[index] = seen
            self._seen[node.name] = seen
            self.index[node.name] = index
            self._touch(seen)
            return True
        before, seen.node = seen.node, node
        if before.metadata.labels != node.metadata.labels:
            self._touch(seen)
            return True
        return before.spec != node.spec or before.status != node.status

    def drop(self, name: str) -> None:
        seen = self._seen.pop(name, None)
        if seen is not None:
            self._by_index[seen.index] = None
            del self.index[name]
            self._spare.append(seen.index)
            self._views.pop(name, None)
            self.changes.note(seen.index)

    # --- changes of pools --------------------------------------------------------------------------------------------

    def pool_changed(self, pool: PoolID, own_before: set[str]) -> None:
        """The slices of the pool changed; `own_before` are the nodes that had slices of their own in it."""
        published = self._pool_of(pool)
        own_now = published.own_nodes() if published else set()
        for name in own_before - own_now:
            pools = self._own[name]
            del pools[pool]
            if not pools:
                del self._own[name]
        for name in own_now - own_before:
            self._own.setdefault(name, {})[pool] = None
        self._sights.pop(pool, None)
        was_open, was_ghost = self._open.pop(pool, 0) is None, self._ghosts.pop(pool, None)
        if published is not None and self._is_open(published):
            self._open[pool] = None
        elif published is not None and published.is_open and (ghost := self._ghost(published)) is not None:
            self._ghosts[pool] = ghost
        if was_open or pool in self._open or was_ghost or pool in self._ghosts:
            self._touch_all()
        else:
            for name in own_before | own_now:
                if (seen := self._seen.get(name)) is not None:
                    self._touch(seen)

    def _is_open(self, published: PublishedPool) -> bool:
        """Whether nodes without slices of their own may find devices in the pool."""
        return any(own_node(item) is None and not item.spec.shared_counters for item in published.slices.values())

    def _ghost(self, published: PublishedPool) -> Sight | None:
        """The pool as nodes see it that have no devices in it; None when there is nothing to see."""
        pool = gather_pool(published.id, tuple(published.slices.values()), "", {}, self._features)
        return Sight(pool) if pool is not None and (pool.incomplete or pool.invalid) else None

    def use_changed(self, pool: PoolID) -> None:
        """Devices of the pool were taken or given back."""
        if pool in self._open:
            self.changes.note_all()
            return
        published = self._pool_of(pool)
        for name in published.own_nodes() if published else ():
            if (seen := self._seen.get(name)) is not None:
                self.changes.note(seen.index)

    def _touch(self, seen: SeenNode) -> None:
        seen.stale = True
        self._views.pop(seen.node.name, None)
        self.changes.note(seen.index)

    def _touch_all(self) -> None:
        for seen in self._seen.values():
            seen.stale = True
        self._views.clear()
        self.changes.note_all()

    # --- what a node sees --------------------------------------------------------------------------------------------

    def current(self, seen: SeenNode) -> SeenNode:
        """The node, brought up to date."""
        if seen.stale:
            self._look(seen)
        return seen

    def view(self, name: str) -> NodeView | None:
        """All pools of the node; None when the node is not known."""
        view = self._views.get(name)
        seen = self._seen.get(name)
        if view is None and seen is not None:
            self.current(seen)
            pools = [sight.pool for sight in seen.sights if sight.pool is not None]
            view = self._views[name] = NodeView(name, pools, seen.error)
        return view

    def _look(self, seen: SeenNode) -> None:
        own = self._own.get(seen.node.name, {})
        found: list[tuple[Any, Sight]] = []
        seen.error, seen.stale = "", False
        for pool in (*own, *(pool for pool in self._open if pool not in own)):
            sight = self._sight(pool, seen.node)
            if sight.error and not seen.error:
                seen.error = sight.error
            if sight.pool is not None:
                found.append((sight.pool.order, sight))
        found += [(sight.pool.order, sight) for pool, sight in self._ghosts.items() if pool not in own and sight.pool]
        found.sort(key=lambda item: item[0])
        seen.sights = () if seen.error else tuple(sight for _, sight in found)

    def _sight(self, pool: PoolID, node: Node) -> Sight:
        published = self._pool_of(pool)
        assert published is not None, pool
        outlook = tuple(_outlook(item, node) for item in published.slices.values())
        known = self._sights.setdefault(pool, {})
        sight = known.get(outlook)
        if sight is None:
            sight = known[outlook] = self._gather(published, node)
        return sight

    def _gather(self, published: PublishedPool, node: Node) -> Sight:
        models = published.models()

        def model_of(_: str, device: Device) -> DeviceModel:
            return models[id(device)]

        slices = tuple(published.slices.values())
        try:
            return Sight(gather_pool(published.id, slices, node.name, node.metadata.labels, self._features, model_of))
        except GatherError as problem:
            return Sight(None, str(problem))


def _outlook(item: ResourceSlice, node: Node) -> Any:
    """What the slice is to the node. Equal outlooks of all slices make equal pools."""
    if is_unconditional(item):
        return True
    try:
        matched = NodeSelection(item.spec).matches(node.name, node.metadata.labels)
        if matched is None and item.spec.per_device_node_selection:
            return tuple(_device_outlook(device, node) for device in item.spec.devices)
        if matched and item.spec.per_device_node_selection:
            return (True, *(_device_outlook(device, node) for device in item.spec.devices))
        return matched
    except NodeSelectorError as problem:
        return str(problem)


def is_unconditional(item: ResourceSlice) -> bool:
    """Whether all nodes see the slice alike."""
    spec = item.spec
    return bool(spec.shared_counters) or (
        not spec.node_name and spec.all_nodes is True and not spec.per_device_node_selection
    )


def _device_outlook(device: Device, node: Node) -> bool | str | None:
    try:
        return NodeSelection(device).matches(node.name, node.metadata.labels)
    except NodeSelectorError as problem:
        return str(problem)
