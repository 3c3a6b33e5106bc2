"""Resource pools as one node sees them, and all of them together in the order of the search.

Promises: pure; the order in which slices are handed in matters only where upstream's does (slices of one generation
that disagree about their number). A pool that cannot be used keeps its place, flagged, without devices. Device i of a
`NodeView` is bit i of every mask over that view: pools by (binding conditions last, driver, name), slices by name,
devices as listed.

Rules: Kubernetes 1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from app.api.core import Node, NodeSelector
from app.api.features import FeatureGates
from app.api.resource import Device, DeviceID, DeviceTaintRule, ResourceSlice
from app.devices.models import REMEMBERED, Consumption, DeviceModel, DeviceModels, ModelSource, consumption
from app.devices.nodeselector import NodeSelectorError, matches
from app.devices.taintrules import TaintRules
from app.devices.usage import PoolID

T = TypeVar("T")


class GatherError(ValueError):
    """The node selection of a slice cannot be understood: fatal for every pod that looks at the pool."""


class NodeSelection:
    """Where a device can be used: what an allocation of it says about nodes. The first that is set decides."""

    __slots__ = ("all_nodes", "node_name", "node_selector")

    def __init__(self, source: Device | Any) -> None:
        self.node_name: str = source.node_name or ""
        self.all_nodes: bool = source.all_nodes is True
        self.node_selector: NodeSelector | None = source.node_selector

    def matches(self, name: str, labels: Mapping[str, str]) -> bool | None:
        """Whether it is for the node; None when nothing known is set. Raises NodeSelectorError."""
        if self.node_name:
            return self.node_name == name
        if self.all_nodes:
            return True
        if self.node_selector is not None:
            return matches(self.node_selector, name, labels)
        return None


class PooledDevice:
    """A device in its pool: who it is, and the model it shares with equal devices."""

    __slots__ = ("id", "model", "selection")

    def __init__(self, id: DeviceID, model: DeviceModel, selection: NodeSelection) -> None:
        self.id = id
        self.model = model
        self.selection = selection

    def __repr__(self) -> str:
        return f"PooledDevice({'/'.join(self.id)})"


class Pool:
    """One pool as a node sees it. Immutable.

    `incomplete` and `invalid` (the reason, empty when valid) pools have no devices. `counters` are what the pool's
    counter sets offer before anything is allocated: set -> counter -> nano units. `consumers` are all devices that
    consume counters, also those for other nodes.
    """

    __slots__ = ("consumers", "counters", "devices", "elsewhere", "id", "incomplete", "invalid", "late", "unmatchable")

    def __init__(
        self,
        id: PoolID,
        devices: tuple[PooledDevice, ...] = (),
        *,
        counters: Mapping[str, Mapping[str, int]] | None = None,
        consumers: tuple[tuple[str, Consumption], ...] = (),
        elsewhere: int = 0,
        unmatchable: Mapping[int, str] | None = None,
        incomplete: bool = False,
        invalid: str = "",
    ) -> None:
        self.id = id
        self.devices = devices
        self.counters = counters or {}
        self.consumers = consumers
        self.elsewhere = elsewhere
        """Mask of the devices whose own node selection leaves this node out."""
        self.unmatchable = unmatchable or {}
        """Devices whose own node selection cannot be understood, with the reason."""
        self.incomplete = incomplete
        self.invalid = invalid
        self.late = any(device.model.binding_conditions for device in devices)
        """Pools with binding conditions are searched last."""

    @property
    def name(self) -> str:
        return "/".join(self.id)

    @property
    def order(self) -> tuple[bool, PoolID]:
        """Pools are searched in this order."""
        return self.late, self.id


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

    def remember(self, key: Any, value: T) -> T:
        """Keep `value` under `key` in `masks`."""
        if len(self.masks) >= REMEMBERED:
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
            if device.model.multi:
                multi |= 1 << index
            if device.model.consumes:
                consuming |= 1 << index
        self._traits = multi, consuming
        return self._traits

    @property
    def bits(self) -> Mapping[DeviceID, int]:
        """The bit of each device."""
        if self._bits is None:
            self._bits = {device.id: index for index, device in enumerate(self.devices)}
        return self._bits


class Peers:
    """All slices of a pool in the cluster, as far as nodes that do not see all of them have to know them."""

    __slots__ = ("_consuming", "_counts", "newest")

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self.newest = 0
        """The newest generation."""
        self._counts: dict[int, int] = {}
        self._consuming: dict[int, list[ResourceSlice]] = {}
        for item in slices:
            generation = item.spec.pool.generation
            self.newest = max(self.newest, generation)
            self._counts[generation] = self._counts.get(generation, 0) + 1
            if any(device.consumes_counters for device in item.spec.devices):
                self._consuming.setdefault(generation, []).append(item)

    def count(self, generation: int) -> int:
        """How many slices the generation has."""
        return self._counts.get(generation, 0)

    def consuming(self, generation: int) -> Sequence[ResourceSlice]:
        """The slices of the generation with devices that consume counters."""
        return self._consuming.get(generation, ())


# --- one pool ---------------------------------------------------------------------------------------------------------


def gather_pool(
    id: PoolID,
    slices: Sequence[ResourceSlice],
    node: str,
    labels: Mapping[str, str],
    features: FeatureGates,
    model_of: ModelSource = DeviceModel,
    peers: Peers | None = None,
) -> Pool | None:
    """The pool as the node sees it, from all slices of the pool in the cluster; None when the node does not see it.

    With `peers`, which stand for all slices, `slices` may leave out those that belong to other nodes. Raises
    GatherError.
    """
    collected: list[ResourceSlice] = []
    generation = 0
    for item in _own_first(slices):
        if not _relevant(item, node, labels, features):
            continue
        current = item.spec.pool.generation
        if not collected or current > generation:
            collected, generation = [item], current
        elif current == generation:
            collected.append(item)
    if not collected:
        return None
    others: list[ResourceSlice] = []
    wanted = collected[0].spec.pool.resource_slice_count
    if len(collected) != wanted:
        peers = peers or Peers(slices)
        if peers.newest > generation:
            return None
        if peers.count(generation) != wanted:
            return Pool(id, incomplete=True)
        names = {item.metadata.name for item in collected}
        others = [item for item in peers.consuming(generation) if item.metadata.name not in names]
    collected.sort(key=lambda item: item.metadata.name.encode())
    return _assemble(id, collected, others, node, labels, features, model_of)


def _own_first(slices: Sequence[ResourceSlice]) -> Iterator[ResourceSlice]:
    """Slices of one node come before those open to many."""
    return chain((s for s in slices if is_own(s)), (s for s in slices if not is_own(s)))


def is_own(item: ResourceSlice) -> bool:
    """Whether the slice is filed under the one node it names."""
    return bool(item.spec.node_name) and not item.spec.shared_counters


def _relevant(item: ResourceSlice, node: str, labels: Mapping[str, str], features: FeatureGates) -> bool:
    spec = item.spec
    if not features.DRAPartitionableDevices and (spec.per_device_node_selection is not None or spec.shared_counters):
        return False
    if spec.shared_counters:
        return True
    try:
        matched = NodeSelection(spec).matches(node, labels)
    except NodeSelectorError as problem:
        raise GatherError(
            f"gather pool information: failed to perform node selection for slice {item.metadata.name}: {problem}"
        ) from None
    if matched is not None:
        return matched
    return bool(spec.per_device_node_selection) and _any_device_matches(item, node, labels)


def _any_device_matches(item: ResourceSlice, node: str, labels: Mapping[str, str]) -> bool:
    """Devices after the first match are not looked at."""
    for device in item.spec.devices:
        try:
            if NodeSelection(device).matches(node, labels):
                return True
        except NodeSelectorError as problem:
            raise GatherError(
                f"gather pool information: failed to perform node selection for device {device.name} "
                f"in slice {item.metadata.name}: {problem}"
            ) from None
    return False


def _assemble(
    id: PoolID,
    slices: list[ResourceSlice],
    others: list[ResourceSlice],
    node: str,
    labels: Mapping[str, str],
    features: FeatureGates,
    model_of: ModelSource,
) -> Pool:
    """Check a complete pool and lay out its devices."""
    partitionable = features.DRAPartitionableDevices
    with_devices = [item for item in slices if not (partitionable and item.spec.shared_counters)]
    invalid = _duplicate_device(with_devices)
    counters: dict[str, dict[str, int]] = {}
    if partitionable:
        invalid = invalid or _collect_counters(slices, counters)
        invalid = invalid or _missing_counter(with_devices + others, counters)
    if invalid:
        return Pool(id, invalid=invalid)
    devices: list[PooledDevice] = []
    elsewhere, unmatchable = 0, {}
    for item in with_devices:
        own = bool(item.spec.per_device_node_selection)
        shared = NodeSelection(item.spec)
        for device in item.spec.devices:
            selection = NodeSelection(device) if own else shared
            if own:
                try:
                    if not selection.matches(node, labels):
                        elsewhere |= 1 << len(devices)
                except NodeSelectorError as problem:
                    unmatchable[len(devices)] = f"failed to perform node selection for device {device.name}: {problem}"
            devices.append(PooledDevice((*id, device.name), model_of(id[0], device), selection))
    consumers = tuple(
        (device.name, consumption(device))
        for item in (with_devices + others if counters else ())
        for device in item.spec.devices
        if device.consumes_counters
    )
    return Pool(
        id, tuple(devices), counters=counters, consumers=consumers, elsewhere=elsewhere, unmatchable=unmatchable
    )


def _duplicate_device(slices: list[ResourceSlice]) -> str:
    seen: set[str] = set()
    for item in slices:
        for device in item.spec.devices:
            if device.name in seen:
                return f"duplicate device name {device.name} in slice {item.metadata.name}"
            seen.add(device.name)
    return ""


def _collect_counters(slices: list[ResourceSlice], counters: dict[str, dict[str, int]]) -> str:
    for item in slices:
        for counter_set in item.spec.shared_counters:
            if counter_set.name in counters:
                return f"duplicate counter set name {counter_set.name} in slice {item.metadata.name}"
            counters[counter_set.name] = {name: counter.value.nano for name, counter in counter_set.counters.items()}
    return ""


def _missing_counter(slices: list[ResourceSlice], counters: Mapping[str, Mapping[str, int]]) -> str:
    for item in slices:
        for device in item.spec.devices:
            for part in device.consumes_counters:
                if part.counter_set not in counters:
                    return f"counter set {part.counter_set} of device {device.name} is not defined in the pool"
                for name in part.counters:
                    if name not in counters[part.counter_set]:
                        return f"counter {name} of device {device.name} is not defined in set {part.counter_set}"
    return ""


# --- all pools of a node ----------------------------------------------------------------------------------------------


def node_view(
    node: Node,
    slices: Iterable[ResourceSlice],
    taint_rules: Iterable[DeviceTaintRule],
    features: FeatureGates,
    model_of: ModelSource | None = None,
) -> NodeView:
    """The view of a node from all slices of the cluster. Never raises: what is fatal is told by `NodeView.error`."""
    rules = TaintRules()
    if features.taint_rules:
        for rule in taint_rules:
            rules.put(rule)
    source = model_of or DeviceModels()
    grouped: dict[PoolID, list[ResourceSlice]] = {}
    for item in slices:
        grouped.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    pools: list[Pool] = []
    try:
        for id, members in grouped.items():
            if all(is_own(item) and item.spec.node_name != node.name for item in members):
                continue
            pool = gather_pool(id, members, node.name, node.metadata.labels, features, _tainted(rules, id, source))
            if pool is not None:
                pools.append(pool)
    except GatherError as problem:
        return NodeView(node.name, (), error=str(problem))
    return NodeView(node.name, pools)


def _tainted(rules: TaintRules, id: PoolID, source: ModelSource) -> ModelSource:
    """A source of models that adds the rules' taints."""
    if not len(rules):
        return source

    def model_of(driver: str, device: Device) -> DeviceModel:
        return source(driver, rules.tainted(id, (device,))[0])

    return model_of
