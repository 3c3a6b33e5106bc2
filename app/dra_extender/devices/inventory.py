"""The devices that exist: slices, device classes, taint rules and nodes, indexed for decisions.

Promises: an event changes only its pool and the nodes that see the pool. `problems` has the objects that make pools
unusable, with advice; other pools are not affected. Methods that put or drop an object return whether a refused pod may
fit now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceSlice
from dra_extender.devices.models import DeviceLists
from dra_extender.devices.nodes import Nodes, SeenNode
from dra_extender.devices.pools import NodeView
from dra_extender.devices.publishedpool import PublishedPool, TaintRules, reaches
from dra_extender.devices.usage import PoolID
from dra_extender.devices.validity import ObjectProblem, problems_of


class Classes(dict[str, DeviceClass]):
    """The known device classes. Only the cluster changes them."""

    def __init__(self) -> None:
        super().__init__()
        self._stamps: dict[str, int] = {}
        self.version = 0
        """Grows with every change of a spec."""

    def stamp(self, name: str) -> int:
        """A number that changes with every change of the class's spec; 0 without such a class."""
        return self._stamps.get(name, 0)

    def put(self, device_class: DeviceClass) -> bool:
        """Add or replace. True when the spec is new or changed."""
        name = device_class.metadata.name
        before = self.get(name)
        self[name] = device_class
        if before is not None and before.spec == device_class.spec:
            return False
        self.version += 1
        self._stamps[name] = self.version
        return True

    def drop(self, name: str) -> bool:
        """Remove. True when the class was known."""
        if self.pop(name, None) is None:
            return False
        del self._stamps[name]
        self.version += 1
        return True


class Inventory:
    """`nodes` and `classes` are live; only the cluster changes them."""

    def __init__(self, features: FeatureGates) -> None:
        self.classes = Classes()
        self.pools: dict[PoolID, PublishedPool] = {}
        self.nodes = Nodes(features, self.pools.get)
        self.view = self.nodes.view
        self.pools_seen = self.nodes.pools_seen
        self.nodes_seeing = self.nodes.seeing
        self._features = features
        self._rules = TaintRules()
        self._device_lists = DeviceLists()
        self._pool_of_slice: dict[str, PoolID] = {}
        self._problems: dict[PoolID, tuple[ObjectProblem, ...]] = {}
        self._unchecked: dict[PoolID, None] = {}

    def put_slice(self, item: ResourceSlice) -> bool:
        name = item.metadata.name
        pool = item.spec.driver, item.spec.pool.name
        before = self._pool_of_slice.get(name)
        if before is not None and before != pool:
            self.drop_slice(name)
            before = None
        if before is not None and self.pools[pool].published(name).spec == item.spec:
            return False
        published = self.pools.setdefault(pool, self._empty(pool))
        own_before = published.own_node(name)
        published.put(item)
        self._pool_of_slice[name] = pool
        self._changed(pool, own_before, published.own_node(name))
        return True

    def _empty(self, pool: PoolID) -> PublishedPool:
        return PublishedPool(pool, self._features, self._device_lists, self._rules)

    def drop_slice(self, name: str) -> bool:
        pool = self._pool_of_slice.pop(name, None)
        if pool is None:
            return False
        published = self.pools[pool]
        own_before = published.own_node(name)
        published.drop(name)
        self._changed(pool, own_before)
        if not published:
            del self.pools[pool], self._unchecked[pool]
            self._problems.pop(pool, None)
        return True

    def _changed(self, pool: PoolID, *nodes: str | None) -> None:
        self._unchecked |= dict.fromkeys(self.nodes.pool_changed(pool, *nodes))

    def put_rule(self, rule: DeviceTaintRule) -> bool:
        before = self._rules.get(rule.metadata.name)
        if not self._features.taint_rules or (before is not None and before.spec == rule.spec):
            return False
        self._rules[rule.metadata.name] = rule
        self._retaint([rule] if before is None else [before, rule])
        return before is not None

    def drop_rule(self, name: str) -> bool:
        before = self._rules.pop(name, None)
        if before is not None:
            self._retaint([before])
        return before is not None

    def _retaint(self, rules: list[DeviceTaintRule]) -> None:
        for pool, published in self.pools.items():
            if any(reaches(rule.spec, pool) for rule in rules):
                published.rules_changed()
                self.nodes.pool_changed(pool)

    def would_see(self, node: Node, slices: Sequence[ResourceSlice]) -> SeenNode:
        """What a hypothetical node with these own slices sees. Nothing is cached."""
        own: dict[PoolID, PublishedPool] = {}
        for item in slices:
            pool = item.spec.driver, item.spec.pool.name
            if pool not in own:
                known = self.pools.get(pool)
                own[pool] = known.copy() if known is not None else self._empty(pool)
            own[pool].put(item)
        return self.nodes.would_see(node, own)

    def own_slices(self, node: str) -> Iterator[ResourceSlice]:
        """The slices with this `nodeName`, also those of shared counters, with the taints of rules."""
        for id in self.nodes.own_pools(node):
            yield from (item for item in self.pools[id].slices() if item.spec.node_name == node)

    def slices(self) -> Iterator[ResourceSlice]:
        """All slices with the taints of rules added, pool by pool."""
        return (item for pool in self.pools.values() for item in pool.slices())

    def check_pools(self) -> Iterator[None]:
        """Check the pools that have changed, one at a step. Pools may change between steps."""
        for _ in range(len(self._unchecked)):
            if not self._unchecked:
                return
            pool, _ = self._unchecked.popitem()
            published = self.pools.get(pool)
            newest, selective = published.newest() if published else (), pool in self.nodes.selector_limit.refused
            found = tuple(problems_of(pool, newest, self._features, too_selective=selective))
            if found:
                self._problems[pool] = found
            else:
                self._problems.pop(pool, None)
            yield

    def problems(self) -> Iterator[ObjectProblem]:
        """What is wrong with slices of the newest generation of their pool."""
        for _ in self.check_pools():
            pass
        return chain.from_iterable(self._problems.values())


def node_view(
    node: Node, slices: Iterable[ResourceSlice], taint_rules: Iterable[DeviceTaintRule], features: FeatureGates
) -> NodeView:
    """The view of one node from all slices of the cluster; errors are in `NodeView.error`."""
    inventory = Inventory(features)
    inventory.nodes.put(node)
    for rule in taint_rules:
        inventory.put_rule(rule)
    for item in slices:
        inventory.put_slice(item)
    view = inventory.view(node.name)
    assert view is not None
    return view
