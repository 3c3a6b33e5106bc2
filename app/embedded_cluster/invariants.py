"""What must be true of a cluster at every moment with any scheduler, checked on what the API server stores.

Independent of the allocator and of the ledger on purpose: this is the second opinion. Pure functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dra_extender.api.core import Node
from dra_extender.api.resource import (
    MAX_CONSUMERS,
    Device,
    DeviceID,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSlice,
)
from embedded_cluster.kubelet import obstacle
from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler.fit import matches

_Held = tuple[ResourceClaim, DeviceRequestAllocationResult]


def violations(
    claims: Iterable[ResourceClaim], pods: Iterable[FullPod], slices: Iterable[ResourceSlice], nodes: Mapping[str, Node]
) -> list[str]:
    """One sentence for each thing that is wrong; empty when all is well."""
    stored = {claim.metadata.key: claim for claim in claims}
    held: dict[DeviceID, list[_Held]] = defaultdict(list)
    for claim in stored.values():
        for result in claim.allocation.devices.results if claim.allocation is not None else ():
            if not result.admin_access:
                held[result.id].append((claim, result))
    newest = _newest(slices)
    published = {
        (part.spec.driver, part.spec.pool.name, device.name): device for part in newest for device in part.spec.devices
    }
    found = _doubles(held) + _overdrawn_capacity(held, published) + _overdrawn_counters(held, published, newest)
    for claim in stored.values():
        found += _wrong_with_claim(claim)
    for pod in pods:
        found += _wrong_with_pod(pod, stored, nodes)
    return found


def _newest(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """The slices of the newest generation of each pool."""
    kept = list(slices)
    generation: dict[tuple[str, str], int] = {}
    for part in kept:
        pool = (part.spec.driver, part.spec.pool.name)
        generation[pool] = max(generation.get(pool, 0), part.spec.pool.generation)
    return [part for part in kept if part.spec.pool.generation == generation[part.spec.driver, part.spec.pool.name]]


def _doubles(held: Mapping[DeviceID, Sequence[_Held]]) -> list[str]:
    found = []
    for device, holders in held.items():
        shares = [result.share_id for _, result in holders]
        exclusive = shares.count(None)
        if exclusive > 1 or (exclusive and len(holders) > 1) or len(set(shares)) < len(shares):
            names = ", ".join(claim.metadata.key for claim, _ in holders)
            found.append(f"device {'/'.join(device)} is allocated more than once: {names}")
    return found


def _overdrawn_capacity(held: Mapping[DeviceID, Sequence[_Held]], published: Mapping[DeviceID, Device]) -> list[str]:
    found = []
    for device, holders in held.items():
        if device not in published:
            continue  # unplugged while in use
        used: dict[str, int] = defaultdict(int)
        for _, result in holders:
            for name, amount in result.consumed_capacity.items():
                used[name] += amount.nano
        for name, total in used.items():
            offered = published[device].capacity.get(name)
            if offered is None or total > offered.value.nano:
                found.append(f"capacity {name} of device {'/'.join(device)} is overdrawn")
    return found


def _overdrawn_counters(
    held: Mapping[DeviceID, Sequence[_Held]], published: Mapping[DeviceID, Device], slices: Sequence[ResourceSlice]
) -> list[str]:
    left: dict[tuple[str, str, str, str], int] = {}
    for part in slices:
        for counters in part.spec.shared_counters:
            for name, counter in counters.counters.items():
                left[part.spec.driver, part.spec.pool.name, counters.name, name] = counter.value.nano
    for id_ in held:
        consumptions = published[id_].consumes_counters if id_ in published else ()
        for consumption in consumptions:
            for name, counter in consumption.counters.items():
                key = (id_[0], id_[1], consumption.counter_set, name)
                left[key] = left.get(key, 0) - counter.value.nano
    return [f"counter {'/'.join(key)} is overdrawn" for key, amount in left.items() if amount < 0]


def _wrong_with_claim(claim: ResourceClaim) -> list[str]:
    found = []
    consumers = [consumer.uid for consumer in claim.status.reserved_for]
    if len(consumers) > MAX_CONSUMERS:
        found.append(f"claim {claim.metadata.key} has {len(consumers)} consumers")
    if len(set(consumers)) < len(consumers):
        found.append(f"claim {claim.metadata.key} names a consumer twice")
    if consumers and claim.allocation is None:
        found.append(f"claim {claim.metadata.key} is reserved without being allocated")
    return found


def _wrong_with_pod(pod: FullPod, claims: Mapping[str, ResourceClaim], nodes: Mapping[str, Node]) -> list[str]:
    """Running pods have their claims; bound pods are on a node that their allocations are for."""
    if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return []
    found = []
    if pod.status.phase == "Running":
        missing = obstacle(pod, lambda namespace, name: claims.get(f"{namespace}/{name}"))
        if missing:
            found.append(f"pod {pod.metadata.key} runs although {missing}")
    node = nodes.get(pod.spec.node_name)
    for claim in claims.values():
        if claim.allocation is None or not claim.reserved_for(pod.metadata.uid):
            continue
        selector = claim.allocation.node_selector
        labels = node.metadata.labels if node is not None else {}
        if selector is not None and not matches(selector, labels, pod.spec.node_name):
            found.append(f"pod {pod.metadata.key} is on {pod.spec.node_name}, not where {claim.metadata.key} is")
    return found
