"""All pools of a node together, in the order of the search.

Promises: device i of a `NodeView` is bit i of every mask over that view: pools by (binding conditions last, driver,
name), slices by name, devices as listed.

Rules: Kubernetes 1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import Device, DeviceID, DeviceTaintRule, ResourceSlice
from dra_extender.devices.assembly import BlockOf, GatherError, gather_pool, is_own
from dra_extender.devices.content import encode
from dra_extender.devices.models import REMEMBERED, Block, DeviceModel, traits_of
from dra_extender.devices.pools import Pool, PooledDevice
from dra_extender.devices.publishedpool import TaintRules
from dra_extender.devices.usage import PoolID

T = TypeVar("T")


class NodeView:
    """All pools of a node in search order; their devices are the bits of every mask. Immutable, except for `masks`,
    where callers may remember what follows from the view alone.

    `offsets[i]` is the first bit of pool i. `error` is set when the slices of the node cannot be evaluated at all.
    """

    __slots__ = (
        "_bits", "_traits", "all", "devices", "elsewhere", "error", "incomplete", "invalid", "masks", "node", "offsets",
        "pools", "unmatchable",
    )  # fmt: skip

    def __init__(self, node: str, pools: Iterable[Pool], error: str = "") -> None:
        self.node = node
        self.error = error
        self.pools: tuple[Pool, ...] = tuple(sorted(pools, key=lambda pool: pool.order))
        self.devices: tuple[PooledDevice, ...] = tuple(chain.from_iterable(pool.devices for pool in self.pools))
        self.all = (1 << len(self.devices)) - 1
        self.incomplete = any(pool.incomplete for pool in self.pools)
        self.invalid = any(pool.invalid for pool in self.pools)
        self.elsewhere = 0
        self.unmatchable: dict[int, str] = {}
        offsets, offset = [], 0
        for pool in self.pools:
            offsets.append(offset)
            self.elsewhere |= pool.elsewhere << offset
            for index, problem in pool.unmatchable.items():
                self.unmatchable[offset + index] = problem
            offset += len(pool.devices)
        self.offsets: tuple[int, ...] = tuple(offsets)
        self.masks: dict[Any, Any] = {}
        self._bits: dict[DeviceID, int] | None = None
        self._traits: tuple[int, int] | None = None

    def remember(self, key: Any, value: T, most: int = REMEMBERED) -> T:
        """Keep `value` under `key` in `masks`, of at most so many."""
        if len(self.masks) >= most:
            self.masks.clear()
        self.masks[key] = value
        return value

    @property
    def multi(self) -> int:
        """Mask of the devices that allow multiple allocations, whatever the features are."""
        return (self._traits or self._look())[0]

    @property
    def consuming(self) -> int:
        """Mask of the devices that consume counters."""
        return (self._traits or self._look())[1]

    def _look(self) -> tuple[int, int]:
        multi = consuming = 0
        for index, device in enumerate(self.devices):
            if device.model.traits.multi:
                multi |= 1 << index
            if device.model.traits.consumes:
                consuming |= 1 << index
        self._traits = multi, consuming
        return self._traits

    @property
    def bits(self) -> Mapping[DeviceID, int]:
        """The bit of each device."""
        if self._bits is None:
            self._bits = {device.id: index for index, device in enumerate(self.devices)}
        return self._bits


def node_view(
    node: Node,
    slices: Iterable[ResourceSlice],
    taint_rules: Iterable[DeviceTaintRule],
    features: FeatureGates,
) -> NodeView:
    """The view of a node from all slices of the cluster. Never raises: what is fatal stands in `NodeView.error`."""
    rules = TaintRules()
    if features.taint_rules:
        for rule in taint_rules:
            rules.put(rule)
    models: dict[bytes, DeviceModel] = {}
    grouped: dict[PoolID, list[ResourceSlice]] = {}
    for item in slices:
        grouped.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    pools: list[Pool] = []
    try:
        for id, members in grouped.items():
            if all(is_own(item) and item.spec.node_name != node.name for item in members):
                continue
            pool = gather_pool(id, members, node.name, node.metadata.labels, features, _blocks(rules, id, models))
            if pool is not None:
                pools.append(pool)
    except GatherError as problem:
        return NodeView(node.name, (), error=str(problem))
    return NodeView(node.name, pools)


def _blocks(rules: TaintRules, id: PoolID, models: dict[bytes, DeviceModel]) -> BlockOf:
    """The devices of slices of a pool, with the rules' taints. Content is compared as it is: for the devices of one
    node that is less work than taking digests.
    """

    def model(device: Device) -> DeviceModel:
        traits = traits_of(id[0], device)
        return models.setdefault(encode(traits), DeviceModel(traits))

    def block_of(item: ResourceSlice) -> Block:
        devices = rules.tainted(id, item.spec.devices)
        return Block(devices, tuple(map(model, devices)))

    return block_of
