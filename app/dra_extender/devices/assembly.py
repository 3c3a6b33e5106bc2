"""A pool as one node sees it, assembled from the slices of the cluster.

Promises: pure. The order of the given slices matters only if slices of one generation have different
resourceSliceCounts, as upstream. The pool has its slices by name, and devices in the order of their slice.

Rules: Kubernetes 1.36 and 1.37, structured/internal/incubating/pools_incubating.go. A slice that defines counters
concerns all nodes in 1.36, and in 1.37 the nodes that it selects, like any other slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceSlice
from dra_extender.devices.models import DeviceList, declared_groups
from dra_extender.devices.nodeselection import NodeSelection, NodeSelectorError
from dra_extender.devices.pools import Pool
from dra_extender.devices.usage import PoolID
from dra_extender.devices.validity import (
    TOO_MANY,
    are_too_many,
    defects,
    gap_of,
    is_complete,
    is_ignored,
    with_devices,
)

T = TypeVar("T")
DevicesOf = Callable[[ResourceSlice], DeviceList]
"""The devices of a slice, with the taints of rules."""


class GatherError(ValueError):
    """The node selection of a slice is invalid. No pod with claims can be placed on a node that needs it."""


class Generations:
    """Counts the slices of a pool in the whole cluster by generation, and lists the slices that concern counters."""

    __slots__ = ("counts", "newest", "with_counters")

    def __init__(self, slices: Iterable[ResourceSlice], features: FeatureGates) -> None:
        self.newest = 0
        """The newest generation."""
        self.counts: Counter[int] = Counter()
        self.with_counters: dict[int, list[ResourceSlice]] = {}
        """The slices that define counters, or have devices that consume them."""
        for item in slices:
            if is_ignored(item, features):
                continue
            generation = item.spec.pool.generation
            self.newest = max(self.newest, generation)
            self.counts[generation] += 1
            if item.spec.shared_counters or any(device.consumes_counters for device in item.spec.devices):
                self.with_counters.setdefault(generation, []).append(item)


def gather_pool(
    id: PoolID,
    slices: Sequence[ResourceSlice],
    node: Node,
    features: FeatureGates,
    devices_of: DevicesOf,
    generations: Callable[[], Generations] | None = None,
) -> Pool | None:
    """The pool as the node sees it; None when the node does not see it. `slices`: all slices that the node may see.
    `generations` counts the slices of the whole cluster; it is called only if the pool looks incomplete. Without it,
    `slices` has all slices of the pool. Raises GatherError.
    """
    collected: list[ResourceSlice] = []
    generation = 0
    for item in sorted(slices, key=lambda item: is_own(item, features), reverse=True):  # upstream's order
        if not _relevant(item, node.name, node.metadata.labels, features, devices_of):
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
    if not is_complete(wanted, len(collected)):
        everywhere = generations() if generations is not None else Generations(slices, features)
        if everywhere.newest > generation:
            return None
        if not is_complete(wanted, everywhere.counts[generation]):
            gaps = [gap for item in slices if (gap := gap_of(item, features))]
            return Pool(id, incomplete=True, gap=gaps[0]) if gaps else Pool(id, incomplete=True)
        names = {item.metadata.name for item in collected}
        others = [item for item in everywhere.with_counters.get(generation, ()) if item.metadata.name not in names]
    collected.sort(key=lambda item: item.metadata.name.encode())
    return _assemble(id, collected, others, node, features, devices_of)


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
    item: ResourceSlice, node: str, labels: Mapping[str, str], features: FeatureGates, devices_of: DevicesOf
) -> bool:
    spec = item.spec
    if is_ignored(item, features):
        return False
    if not features.DRAPartitionableDevices and (spec.per_device_node_selection is not None or spec.shared_counters):
        return False
    if spec.shared_counters and not features.is_1_37:
        return True
    name = item.metadata.name
    matched = _matches(NodeSelection(spec), f"slice {name}", node, labels)
    if matched is not None or not spec.per_device_node_selection:
        return matched is True
    # Stops at the first match, as upstream: an invalid selector after it is not an error.
    found = devices_of(item)
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
    id: PoolID,
    slices: list[ResourceSlice],
    others: list[ResourceSlice],
    node: Node,
    features: FeatureGates,
    devices_of: DevicesOf,
) -> Pool:
    """A complete pool, valid or not."""
    if are_too_many(slices):
        return Pool(id, invalid=TOO_MANY)
    usable = with_devices(slices, features)
    device_lists = [devices_of(item) for item in usable]
    alone = len(slices) == len(device_lists) == 1 and not others and device_lists[0].valid_alone
    defect = None if alone else next(defects(slices, features, others), None)
    if defect is not None:
        return Pool(id, invalid=defect.what)
    counters: dict[str, dict[str, int]] = {}
    if features.DRAPartitionableDevices:
        counters = {
            counter_set.name: {name: counter.value.nano for name, counter in counter_set.counters.items()}
            for item in (*slices, *others)
            for counter_set in item.spec.shared_counters
        }
    selections: list[NodeSelection] = []
    elsewhere, unserved, unmatchable, skips = 0, 0, {}, {}
    for item, found in zip(usable, device_lists, strict=True):
        devices = range(len(selections), len(selections) + len(item.spec.devices))
        if item.spec.skip_node_operations and features.is_experimental:
            skips.update(dict.fromkeys(devices, item.spec.skip_node_operations))
            if not (features.DRAOptionalNodeOperations and node.may_skip_operations):
                unserved |= sum(1 << index for index in devices)
        if not item.spec.per_device_node_selection:
            selections += [NodeSelection(item.spec)] * len(item.spec.devices)
            continue
        for name, selection in zip(found.names, found.selections, strict=True):
            try:
                if not selection.matches(node.name, node.metadata.labels):
                    elsewhere |= 1 << len(selections)
            except NodeSelectorError as problem:
                unmatchable[len(selections)] = f"failed to perform node selection for device {name}: {problem}"
            selections.append(selection)
    lists = [*device_lists, *map(devices_of, others)] if counters else []
    named = ((name, model.traits) for each in lists for name, model in zip(each.names, each.models, strict=True))
    consuming = [(name, traits) for name, traits in named if traits.partition]
    groups = ((name, declared_groups(traits)) for name, traits in consuming)
    return Pool(
        id,
        _joined([found.names for found in device_lists]),
        _joined([found.models for found in device_lists]),
        tuple(selections),
        late=any(found.late for found in device_lists),
        counters=counters,
        consumers=tuple((name, traits.consumes) for name, traits in consuming),
        groups=tuple(groups) if any(traits.groups for _, traits in consuming) else (),
        elsewhere=elsewhere,
        unserved=unserved,
        skips=skips,
        unmatchable=unmatchable,
    )


def _joined(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """All parts; a single one is shared."""
    return parts[0] if len(parts) == 1 else tuple(chain.from_iterable(parts))
