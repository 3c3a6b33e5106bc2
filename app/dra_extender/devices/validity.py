"""Reasons why a pool is unusable. Decisions and problem reports use the same checks.

Promises: a decision leaves out the devices of a pool exactly if the node sees too many devices, node selectors have too
many requirements, or `is_complete` or `defects` finds a reason in the slices that it sees. It reports the first reason.
`problems_of` applies `are_too_many` to each node's own slices of the pool, and the other checks to all slices.

Rules: Kubernetes 1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import CounterSet, Device, ResourceSlice
from dra_extender.devices.nodeselection import NodeSelection, NodeSelectorError
from dra_extender.devices.usage import PoolID
from dra_extender.limits import DEVICES_OF_NODE, REQUIREMENTS_OF_NODE
from dra_extender.plaintext import counted

TOO_MANY = f"the node sees more than {DEVICES_OF_NODE:,} devices"
TOO_SELECTIVE = f"with all smaller pools it has more than {REQUIREMENTS_OF_NODE:,} node selector requirements"


class ObjectProblem(msgspec.Struct, frozen=True, order=True):
    """`what` is wrong with an object of the cluster; `advice` says what to do."""

    object: ObjectKey
    what: str
    advice: str


def is_complete(wanted: int, found: int) -> bool:
    """True when the pool has as many slices of a generation as one of them says (spec.pool.resourceSliceCount)."""
    return wanted == found


def are_too_many(slices: Iterable[ResourceSlice]) -> bool:
    """True when the slices have more devices than one node may see."""
    return sum(len(item.spec.devices) for item in slices) > DEVICES_OF_NODE


def with_devices(slices: Iterable[ResourceSlice], features: FeatureGates) -> list[ResourceSlice]:
    """The slices that do not define counters: the others have no devices."""
    return [item for item in slices if not (features.DRAPartitionableDevices and item.spec.shared_counters)]


def valid_alone(devices: Sequence[Device]) -> bool:
    """True when a pool with only these devices has no defect. Nodes with equal devices need one check."""
    distinct = len({device.name for device in devices}) == len(devices)
    return distinct and not any(device.consumes_counters for device in devices)


def defects(slices: Sequence[ResourceSlice], features: FeatureGates) -> Iterator[ObjectProblem]:
    """Why a pool of these slices is invalid: the first defect for each slice and rule. `what` is constant; explanations
    quote it.
    """
    yield from duplicate_devices(slices, features)
    yield from counter_defects(slices, features)


def duplicate_devices(slices: Sequence[ResourceSlice], features: FeatureGates) -> Iterator[ObjectProblem]:
    return _duplicates("device", ((item, item.spec.devices) for item in with_devices(slices, features)))


def counter_defects(slices: Sequence[ResourceSlice], features: FeatureGates) -> Iterator[ObjectProblem]:
    """What is wrong with the counters that the slices define or that their devices consume."""
    if features.DRAPartitionableDevices:
        yield from _duplicates("counter set", ((item, item.spec.shared_counters) for item in slices))
        offered = {found.name: found.counters for item in slices for found in item.spec.shared_counters}
        for item in with_devices(slices, features):
            if missing := _missing_counter(item, offered):
                advice = "the driver has to publish it in spec.sharedCounters of a slice of the pool"
                yield _problem(item.metadata.name, missing, advice)


def _duplicates(
    kind: str, parts: Iterable[tuple[ResourceSlice, Sequence[Device | CounterSet]]]
) -> Iterator[ObjectProblem]:
    """`parts`: those of each slice, which have names. A duplicate is reported for both slices."""
    seen: dict[str, str] = {}
    for published, named in parts:
        item, repeated = published.metadata.name, ""
        for part in named:
            if part.name in seen and not repeated:
                repeated = part.name
            seen.setdefault(part.name, item)
        if repeated:
            what = f"duplicate {kind} name {repeated} in slice {item}"
            for involved in dict.fromkeys((item, seen[repeated])):
                yield _problem(involved, what, f"the driver has to give each {kind} of the pool a name of its own")


def _missing_counter(item: ResourceSlice, offered: Mapping[str, Mapping[str, object]]) -> str:
    for device in item.spec.devices:
        for part in device.consumes_counters:
            if part.counter_set not in offered:
                return f"counter set {part.counter_set} of device {device.name} is not defined in the pool"
            for name in part.counters:
                if name not in offered[part.counter_set]:
                    return f"counter {name} of device {device.name} is not defined in set {part.counter_set}"
    return ""


def is_ignored(item: ResourceSlice, features: FeatureGates) -> bool:
    """Whether the slice counts as missing, because it uses compatibility groups and their gate is off."""
    return ignores_groups(features) and any(
        part.compatibility_groups for device in item.spec.devices for part in device.consumes_counters
    )


def ignores_groups(features: FeatureGates) -> bool:
    """Whether slices that use compatibility groups count as missing."""
    return not (features.DRADeviceCompatibilityGroups and features.DRAPartitionableDevices)


def gap_of(item: ResourceSlice, features: FeatureGates) -> str:
    """Why the slice counts as missing, for people; empty if it does not."""
    if not is_ignored(item, features):
        return ""
    return f"slice {item.metadata.name} has compatibilityGroups, and feature gate DRADeviceCompatibilityGroups is off"


def problems_of(
    pool: PoolID, newest: Sequence[ResourceSlice], features: FeatureGates, *, too_selective: bool = False
) -> Iterator[ObjectProblem]:
    """The problems of the slices of a pool's newest generation, by name of the slice within each rule."""
    name = "/".join(pool)
    own: dict[str, list[ResourceSlice]] = {}
    for item in newest:
        published = item.spec.pool
        if gap := gap_of(item, features):
            advice = "its devices are left out: if the gate is on in Kubernetes, add it to --feature-gates"
            yield _problem(item.metadata.name, f"pool {name} is incomplete: {gap}", advice)
        if not is_complete(published.resource_slice_count, len(newest)):
            yield _problem(
                item.metadata.name,
                f"pool {name} has {counted(len(newest), 'slice')} of generation {published.generation}, "
                f"but spec.pool.resourceSliceCount is {published.resource_slice_count}",
                "its devices are left out until the numbers agree: the driver has to publish the other slices, or "
                "correct the count",
            )
        own.setdefault(item.spec.node_name or "", []).append(item)
    for node, slices in own.items():
        if node and are_too_many(slices):
            what = f"pool {name} is invalid on node {node}: {TOO_MANY}"
            yield _problem(slices[0].metadata.name, what, "its devices are left out: the driver has to publish fewer")
            return
    if too_selective and newest:
        advice = "its devices are left out: the driver has to publish smaller node selectors"
        yield _problem(newest[0].metadata.name, f"pool {name} is invalid: {TOO_SELECTIVE}", advice)
        return
    for defect in defects(newest, features):
        advice = f"its devices are left out: {defect.advice}"
        yield _problem(defect.object.name, f"pool {name} is invalid: {defect.what}", advice)
    for item in newest:
        yield from _node_selectors(item)


def _problem(item: str, what: str, advice: str) -> ObjectProblem:
    return ObjectProblem(ObjectKey("ResourceSlice", item), what, advice)


def _node_selectors(item: ResourceSlice) -> Iterator[ObjectProblem]:
    selections = [("spec.nodeSelector", NodeSelection(item.spec))]
    selections += [
        (f"spec.devices[{index}].nodeSelector", NodeSelection(device))
        for index, device in enumerate(item.spec.devices)
        if device.node_selector is not None
    ]
    for field, selection in selections:
        try:
            selection.matcher()
        except NodeSelectorError as error:
            advice = "no pod can be decided on the nodes that have to look at it, until the driver corrects it"
            yield _problem(item.metadata.name, f"{field}: {error}", advice)
            return
