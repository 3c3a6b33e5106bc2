"""Builds the AllocationResult of each claim from the devices that a search took.

Promises: results are in the order of allocation. Empty fields are absent. The caller gives one share ID per share.
A claim without requests gets an empty allocation. Class configuration is in the order in which the search uses the
classes; each entry lists the requests that it applies to. Each entry of the claim's configuration appears once, with
its own list of requests. It is left out if the allocation contains none of them. Kubernetes 1.36 repeats the entry for
every request, which can exceed the API's limit. With the rules of 1.37, an entry for all requests has no list.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (createNodeSelector and Allocate).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from dra_extender.allocation.requests import Ask, PreparedClaim
from dra_extender.allocation.state import Taken
from dra_extender.allocation.task import AllocationTask, FatalError
from dra_extender.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from dra_extender.devices.nodeselection import NodeSelection, one_node
from dra_extender.devices.pools import PooledDevice

ShareIDs = Callable[[], str]
"""A fresh UUID for each call."""


def allocations(task: AllocationTask, taken: Sequence[Taken], share_ids: ShareIDs) -> tuple[AllocationResult, ...]:
    """One allocation per claim. Raises FatalError when a node selector cannot be expressed."""
    by_claim: list[list[Taken]] = [[] for _ in task.prepared.claims]
    for item in taken:
        by_claim[item.option.claim].append(item)
    return tuple(
        _allocation(task, claim, items, share_ids) for claim, items in zip(task.prepared.claims, by_claim, strict=True)
    )


def _allocation(
    task: AllocationTask, claim: PreparedClaim, items: list[Taken], share_ids: ShareIDs
) -> AllocationResult:
    devices = [task.view.devices[item.device] for item in items]
    skips = task.view.skips
    results = tuple(
        _result(item, device, share_ids, skips.get(item.device, ()))
        for item, device in zip(items, devices, strict=True)
    )
    asks: dict[str, Ask] = {item.option.ask.name: item.option.ask for item in items}
    return AllocationResult(
        DeviceAllocationResult(results, configuration(claim, tuple(asks.values()), task.features)),
        _node_selector(task, claim, devices),
    )


def _result(
    item: Taken, device: PooledDevice, share_ids: ShareIDs, skips: tuple[str, ...]
) -> DeviceRequestAllocationResult:
    driver, pool, name = device.id
    shared = item.takes is not None
    return DeviceRequestAllocationResult(
        item.option.ask.name,
        driver,
        pool,
        name,
        admin_access=True if item.option.admin else None,
        tolerations=item.option.ask.tolerations,
        binding_conditions=device.model.traits.binding_conditions,
        binding_failure_conditions=device.model.traits.binding_failure_conditions,
        share_id=share_ids() if shared else None,
        consumed_capacity=dict(item.takes or ()),
        skip_node_operations=skips,
    )


def _node_selector(task: AllocationTask, claim: PreparedClaim, devices: Sequence[PooledDevice]) -> NodeSelector | None:
    """Where the allocated devices can be used together; None: everywhere."""
    fields: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    labels: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    for device in devices:
        selection: NodeSelection = device.selection
        if selection.node_name or device.model.traits.binds_to_node:
            return one_node(task.view.node)
        if selection.node_selector is None:
            continue
        terms = selection.node_selector.node_selector_terms
        if selection.has_many_terms:
            name = claim.claim.metadata.name
            raise FatalError(
                f"create NodeSelector for claim {name}: unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            for merged, requirements in ((fields, term.match_fields), (labels, term.match_expressions)):
                for item in requirements:
                    merged.setdefault((item.key, item.operator, frozenset(item.values)), item)
    if not fields and not labels:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(labels.values()), tuple(fields.values())),))


def configuration(
    claim: PreparedClaim, chosen: Sequence[Ask], features: FeatureGates
) -> tuple[DeviceAllocationConfiguration, ...]:
    """All entries for a claim; `chosen` is the ask of each of its requests, in order."""
    entries = *_of_classes(claim, chosen), *_of_claim(claim, chosen)
    if not features.is_1_37:
        return entries
    return tuple(replace(entry, requests=()) if _covers(entry.requests, chosen) else entry for entry in entries)


def _covers(requests: Sequence[str], chosen: Sequence[Ask]) -> bool:
    return all(ask.parent in requests or ask.name in requests for ask in chosen)


def _of_classes(claim: PreparedClaim, chosen: Sequence[Ask]) -> list[DeviceAllocationConfiguration]:
    names: dict[str, list[str]] = {}
    for ask in chosen:
        names.setdefault(ask.class_name, []).append(ask.name)
    return [
        DeviceAllocationConfiguration("FromClass", tuple(requests), entry.opaque)
        for name, requests in names.items()
        for entry in claim.classes[name].spec.config
    ]


def _of_claim(claim: PreparedClaim, chosen: Sequence[Ask]) -> list[DeviceAllocationConfiguration]:
    present = {name for ask in chosen for name in (ask.parent, ask.name)}
    return [
        DeviceAllocationConfiguration("FromClaim", entry.requests, entry.opaque)
        for entry in claim.claim.spec.devices.config
        if not entry.requests or not present.isdisjoint(entry.requests)
    ]
