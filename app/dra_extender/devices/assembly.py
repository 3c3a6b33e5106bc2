"""A pool as one node sees it, assembled from the slices of the cluster.

Promises: pure. The order of the given slices matters only if slices of one generation have different
resourceSliceCounts, as upstream. The pool has its slices by name, and devices in the order of their slice.

Rules: Kubernetes 1.36 and 1.37, structured/internal/incubating/pools_incubating.go. A slice that defines counters
concerns all nodes in 1.36, and in 1.37 the nodes that it selects, like any other slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeVar

from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceSlice
from dra_extender.devices.models import Consumption, DeviceList, SetGroups, declared_groups
from dra_extender.devices.nodeselection import NodeSelection, NodeSelectorError
from dra_extender.devices.pools import Pool
from dra_extender.devices.usage import PoolID
from dra_extender.devices.validity import (
    TOO_MANY,
    are_too_many,
    counter_defects,
    duplicate_devices,
    gap_of,
    ignores_groups,
    is_complete,
    is_ignored,
    with_devices,
)

T = TypeVar("T")
DevicesOf = Callable[[ResourceSlice], DeviceList]
"""The devices of a slice, with the taints of rules."""


class GatherError(ValueError):
    """The node selection of a slice is invalid. No pod with claims can be placed on a node that needs it."""


class PoolCounters:
    """What these slices of a pool define and consume of counters. `defect`: why it is invalid; empty when valid."""

    def __init__(self, slices: Sequence[ResourceSlice], features: FeatureGates, device_list: DevicesOf) -> None:
        found = [part for item in slices for part in item.spec.shared_counters]
        self.offered = {
            part.name: {name: counter.value.nano for name, counter in part.counters.items()} for part in found
        }
        """What the counter sets offer, set -> counter -> nano units."""
        self._partitions = [device_list(item).partitions for item in with_devices(slices, features)]
        known = {*self.offered, *((name, counter) for name, counters in self.offered.items() for counter in counters)}
        sound = len(found) == len(self.offered) and all(part.needs <= known for part in self._partitions)
        ordered = () if sound else sorted(slices, key=_by_name)
        self.defect = next((defect.what for defect in counter_defects(ordered, features)), "")

    @cached_property
    def consumers(self) -> tuple[tuple[str, Consumption], ...]:
        return tuple([(name, traits.consumes) for part in self._partitions for name, traits in part.consumers])

    @cached_property
    def groups(self) -> tuple[tuple[str, SetGroups], ...]:
        """The compatibility groups of the consumers, if some has any."""
        if not any(part.grouped for part in self._partitions):
            return ()
        return tuple([(name, declared_groups(traits)) for part in self._partitions for name, traits in part.consumers])


class Generations:
    """Counts the slices of a pool in the whole cluster by generation, and sums up what they define and consume of
    counters: once for all nodes.
    """

    def __init__(self, slices: Iterable[ResourceSlice], features: FeatureGates, device_list: DevicesOf) -> None:
        self._features, self._device_list = features, device_list
        self.newest = 0
        """The newest generation."""
        self.counts: Counter[int] = Counter()
        self._with_counters: dict[int, list[ResourceSlice]] = {}
        """The slices that define counters, or have devices that consume them."""
        self._counters: dict[int, PoolCounters] = {}
        ignores = ignores_groups(features)
        for item in slices:
            partitions = device_list(item).partitions
            if ignores and partitions.grouped:
                continue
            generation = item.spec.pool.generation
            self.newest = max(self.newest, generation)
            self.counts[generation] += 1
            if item.spec.shared_counters or partitions.needs:
                self._with_counters.setdefault(generation, []).append(item)

    def counters(self, generation: int) -> PoolCounters | None:
        """Those of the slices of this generation; None without any."""
        slices = self._with_counters.get(generation)
        if slices is not None and generation not in self._counters:
            self._counters[generation] = PoolCounters(slices, self._features, self._device_list)
        return self._counters.get(generation)


class SlicesOfPool(Protocol):
    """The slices of one pool in the whole cluster."""

    id: PoolID

    def device_list(self, item: ResourceSlice) -> DeviceList:
        """The devices of a slice, with the taints of rules."""
        ...

    def selection(self, item: ResourceSlice) -> NodeSelection:
        """The nodes that the slice names, parsed at most once."""
        ...

    @property
    def generations(self) -> Generations: ...


def gather_pool(
    published: SlicesOfPool, slices: Sequence[ResourceSlice], node: Node, features: FeatureGates
) -> Pool | None:
    """The pool as the node sees it; None when the node does not see it. `slices`: all slices that the node may see. The
    others are looked at only if the pool looks incomplete, once for all nodes. Raises GatherError.
    """
    id = published.id
    collected: list[ResourceSlice] = []
    generation = 0
    for item in sorted(slices, key=lambda item: is_own(item, features), reverse=True):  # upstream's order
        if not _relevant(item, node.name, node.metadata.labels, features, published):
            continue
        current = item.spec.pool.generation
        if not collected or current > generation:
            collected, generation = [item], current
        elif current == generation:
            collected.append(item)
    if not collected:
        return None
    shared: PoolCounters | None = None
    wanted = collected[0].spec.pool.resource_slice_count
    if not is_complete(wanted, len(collected)):
        everywhere = published.generations
        if everywhere.newest > generation:
            return None
        if not is_complete(wanted, everywhere.counts[generation]):
            gaps = [gap for item in slices if (gap := gap_of(item, features))]
            return Pool(id, incomplete=True, gap=gaps[0]) if gaps else Pool(id, incomplete=True)
        shared = everywhere.counters(generation)
    collected.sort(key=_by_name)
    return _assemble(published, collected, shared, node, features)


def _by_name(item: ResourceSlice) -> bytes:
    return item.metadata.name.encode()


def is_own(item: ResourceSlice, features: FeatureGates) -> bool:
    """Whether only the node that it names sees the slice."""
    return bool(item.spec.node_name) and (features.is_1_37 or not item.spec.shared_counters)


def is_of_counters(item: ResourceSlice, features: FeatureGates) -> bool:
    """Whether all nodes see the slice because it defines counters; then it has no devices."""
    return bool(item.spec.shared_counters) and not features.is_1_37


def is_for_all(item: ResourceSlice, features: FeatureGates) -> bool:
    """Whether all nodes see the same of the slice."""
    spec = item.spec
    differs = spec.node_name or spec.per_device_node_selection or spec.skip_node_operations
    return is_of_counters(item, features) or (spec.all_nodes is True and not differs)


def _relevant(
    item: ResourceSlice, node: str, labels: Mapping[str, str], features: FeatureGates, published: SlicesOfPool
) -> bool:
    spec = item.spec
    if is_ignored(item, features):
        return False
    if not features.DRAPartitionableDevices and (spec.per_device_node_selection is not None or spec.shared_counters):
        return False
    if spec.shared_counters and not features.is_1_37:
        return True
    name = item.metadata.name
    matched = _matches(published.selection(item), f"slice {name}", node, labels)
    if matched is not None or not spec.per_device_node_selection:
        return matched is True
    # Stops at the first match, as upstream: an invalid selector after it is not an error.
    found = published.device_list(item)
    named = zip(found.names, found.selections, strict=True)
    return any(_matches(selection, f"device {device} in slice {name}", node, labels) for device, selection in named)


def _matches(selection: NodeSelection, subject: str, node: str, labels: Mapping[str, str]) -> bool | None:
    """As `NodeSelection.matches`. Raises GatherError."""
    try:
        return selection.matches(node, labels)
    except NodeSelectorError as problem:
        raise GatherError(
            f"gather pool information: failed to perform node selection for {subject}: {problem}"
        ) from None


def _assemble(
    published: SlicesOfPool,
    slices: list[ResourceSlice],
    shared: PoolCounters | None,
    node: Node,
    features: FeatureGates,
) -> Pool:
    """A complete pool, valid or not. `shared`: the counters of all its slices, if the node does not see all slices."""
    id = published.id
    if are_too_many(slices):
        return Pool(id, invalid=TOO_MANY)
    usable = with_devices(slices, features)
    device_lists = [published.device_list(item) for item in usable]
    counters: PoolCounters | None = None
    if not (len(slices) == len(device_lists) == 1 and shared is None and device_lists[0].valid_alone):
        defect = next((defect.what for defect in duplicate_devices(slices, features)), "")
        if not defect and features.DRAPartitionableDevices:
            counters = shared or PoolCounters(slices, features, published.device_list)
            defect = counters.defect
        if defect:
            return Pool(id, invalid=defect)
    selections: list[NodeSelection] = []
    elsewhere, unserved, unmatchable, skips = 0, 0, {}, {}
    for item, found in zip(usable, device_lists, strict=True):
        devices = range(len(selections), len(selections) + len(item.spec.devices))
        if item.spec.skip_node_operations and features.is_experimental:
            skips.update(dict.fromkeys(devices, item.spec.skip_node_operations))
            if not (features.DRAOptionalNodeOperations and node.may_skip_operations):
                unserved |= sum(1 << index for index in devices)
        if not item.spec.per_device_node_selection:
            selections += [published.selection(item)] * len(item.spec.devices)
            continue
        for name, selection in zip(found.names, found.selections, strict=True):
            try:
                if not selection.matches(node.name, node.metadata.labels):
                    elsewhere |= 1 << len(selections)
            except NodeSelectorError as problem:
                unmatchable[len(selections)] = f"failed to perform node selection for device {name}: {problem}"
            selections.append(selection)
    if counters is not None and not counters.offered:
        counters = None
    return Pool(
        id,
        _joined([found.names for found in device_lists]),
        _joined([found.models for found in device_lists]),
        tuple(selections),
        late=any(found.late for found in device_lists),
        counters=counters.offered if counters else {},
        consumers=counters.consumers if counters and usable else (),
        groups=counters.groups if counters and usable else (),
        elsewhere=elsewhere,
        unserved=unserved,
        skips=skips,
        unmatchable=unmatchable,
    )


def _joined(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """All parts; a single one is shared."""
    return parts[0] if len(parts) == 1 else tuple(chain.from_iterable(parts))
