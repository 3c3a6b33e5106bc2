"""The slices of one pool as published: all generations, by name, with taint rules applied.

Promises: knows which nodes' own slices belong to it and whether it has slices that any node may see; answers what a
device consumes and offers in the newest generation.

A slice is a node's own when it has `nodeName` and no shared counters; all others are open to every node (Kubernetes
1.36, structured/internal/incubating/pools_incubating.go).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from app.api.resource import CounterSet, Device, ResourceSlice
from app.devices.blocks import Block, Blocks
from app.devices.models import DeviceModel
from app.devices.pools import is_own
from app.devices.taintrules import TaintRules
from app.devices.usage import PoolID


class PublishedPool:
    """The slices of one (driver, pool). Changed by the inventory only; `slices` are in the order of their names."""

    __slots__ = ("_by_name", "_published", "blocks", "id", "slices")

    def __init__(self, pool: PoolID) -> None:
        self.id = pool
        self.slices: dict[str, ResourceSlice] = {}
        """As the allocator sees them: shared values, rules' taints added."""
        self.blocks: dict[str, Block] = {}
        self._published: dict[str, tuple[ResourceSlice, Block]] = {}
        self._by_name: dict[str, Device] | None = None

    def put(self, published: ResourceSlice, blocks: Blocks, rules: TaintRules) -> None:
        """Add or replace a slice."""
        block = blocks.of(self.id[0], published.spec.devices)
        spec = msgspec.structs.replace(published.spec, devices=block.devices)
        self._published[published.metadata.name] = (msgspec.structs.replace(published, spec=spec), block)
        self._apply(published.metadata.name, blocks, rules)

    def retaint(self, blocks: Blocks, rules: TaintRules) -> None:
        """The rules changed."""
        for name in self._published:
            self._apply(name, blocks, rules)

    def _apply(self, name: str, blocks: Blocks, rules: TaintRules) -> None:
        published, block = self._published[name]
        tainted = rules.tainted(self.id, published.spec.devices)
        if tainted is not published.spec.devices:
            block = blocks.of(self.id[0], tainted)
            spec = msgspec.structs.replace(published.spec, devices=block.devices)
            published = msgspec.structs.replace(published, spec=spec)
        new = name not in self.slices
        self.slices[name], self.blocks[name] = published, block
        if new and len(self.slices) > 1:
            self.slices = dict(sorted(self.slices.items()))
        self._by_name = None

    def drop(self, name: str) -> None:
        del self._published[name], self.slices[name], self.blocks[name]
        self._by_name = None

    def published(self, name: str) -> ResourceSlice:
        """The slice without the rules' taints."""
        return self._published[name][0]

    # --- questions ---------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.slices)

    def own_nodes(self) -> set[str]:
        """The nodes that have slices of their own in the pool."""
        return {node for item in self.slices.values() if (node := own_node(item)) is not None}

    @property
    def is_open(self) -> bool:
        """Whether there are slices that every node has to look at."""
        return any(own_node(item) is None for item in self.slices.values())

    def newest(self) -> Iterator[ResourceSlice]:
        """The slices of the newest generation, by name."""
        generation = max((item.spec.pool.generation for item in self.slices.values()), default=0)
        return (item for item in self.slices.values() if item.spec.pool.generation == generation)

    def models(self) -> dict[int, DeviceModel]:
        """The model of each device, by the identity of the device in `slices`."""
        return {
            id(device): model
            for block in self.blocks.values()
            for device, model in zip(block.devices, block.models, strict=True)
        }

    def device(self, name: str) -> Device | None:
        """The device in the newest generation."""
        if self._by_name is None:
            self._by_name = {device.name: device for item in self.newest() for device in item.spec.devices}
        return self._by_name.get(name)

    def counter_sets(self) -> Iterator[CounterSet]:
        """The counter sets of the newest generation."""
        return (counter_set for item in self.newest() for counter_set in item.spec.shared_counters)


def own_node(item: ResourceSlice) -> str | None:
    """The node whose own slice this is."""
    return item.spec.node_name if is_own(item) else None
