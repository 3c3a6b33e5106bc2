"""What devices take of the CPU, memory and huge pages that their node has allocatable (DRANodeAllocatableResources).

Promises: pure. Amounts are exact. `amounts_of` gives the entry of a claim in
pod.status.nodeAllocatableResourceClaimStatuses, without the names of claim and containers.

Rules: Kubernetes 1.37, plugins/dynamicresources/nodeallocatabledynamicresources.go, and
validateNodeAllocatableResources of pkg/apis/resource/validation for what drivers publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dra_extender.api.core import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
)
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    AllocationResult,
    Device,
    DeviceID,
    DeviceRequestAllocationResult,
    NodeAllocatableResource,
    ResourceClaim,
)

_ONE = 10**9

Resources = Mapping[str, NodeAllocatableResource]
"""By resource: what a device takes of it."""


class NotConsumedError(ValueError):
    """A device maps a capacity to a resource, and its allocation does not say how much of the capacity it consumes."""


def amounts_of_all(
    planned: Iterable[tuple[ResourceClaim, AllocationResult]], resources_of: Callable[[DeviceID], Resources]
) -> tuple[NodeAllocatableResourceClaimStatus | None, ...]:
    """Of each claim; empty if none takes anything. Raises NotConsumedError."""
    found = tuple(amounts_of(claim, allocation, resources_of) for claim, allocation in planned)
    return found if any(found) else ()


def amounts_of(
    claim: ResourceClaim, allocation: AllocationResult, resources_of: Callable[[DeviceID], Resources]
) -> NodeAllocatableResourceClaimStatus | None:
    """What the devices of a claim take together; None if they take nothing. Raises NotConsumedError."""
    mapping: dict[str, Quantity] = {}
    overhead: dict[str, tuple[Quantity | None, Quantity | None]] = {}
    for result in allocation.devices.results:
        for name, resource in resources_of(result.id).items():
            amount = _mapped(claim, name, resource, result)
            if amount is not None:
                mapping[name] = mapping[name] + amount if name in mapping else amount
            if resource.overhead is not None:
                pod, container = overhead.get(name, (None, None))
                added = resource.overhead
                overhead[name] = _sum(pod, added.per_pod), _sum(container, added.per_container)
    if not mapping and not overhead:
        return None
    return NodeAllocatableResourceClaimStatus(
        mapping=tuple(NodeAllocatableMappedResources(name, amount) for name, amount in sorted(mapping.items())),
        overhead=tuple(NodeAllocatableOverheadResources(name, *overhead[name]) for name in sorted(overhead)),
    )


def _mapped(
    claim: ResourceClaim, name: str, resource: NodeAllocatableResource, result: DeviceRequestAllocationResult
) -> Quantity | None:
    mapping = resource.mapping
    if mapping is None or not mapping.capacity_key:
        return mapping.device_multiplier if mapping is not None else None
    if not result.consumed_capacity:
        key = mapping.capacity_key
        raise NotConsumedError(
            f"claim {claim.metadata.key}, device {result.device}: ConsumedCapacity is nil, but Capacity key '{key}' is "
            f"set in NodeAllocatableResources for resource {name}"
        )
    consumed, factor = result.consumed_capacity.get(mapping.capacity_key), mapping.capacity_multiplier
    if consumed is None or factor is None or factor.nano == _ONE:
        return consumed
    return Quantity(-(-consumed.nano * factor.nano // _ONE), consumed.format)


def _sum(amount: Quantity | None, more: Quantity | None) -> Quantity | None:
    return amount + more if amount is not None and more is not None else amount or more


def is_mapped(resources: Resources) -> bool:
    """Whether the device is CPU, memory or huge pages itself: pods cannot share a claim that has it."""
    return any(resource.mapping is not None for resource in resources.values())


def defect_of(device: Device) -> str:
    """What is wrong with what the device says it takes; empty if nothing is. The API server accepts no such device."""
    for name, resource in device.node_allocatable_resources.items():
        problem = "neither mapping nor overhead is set" if (resource.mapping or resource.overhead) is None else ""
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            problem = "it is not cpu, memory or hugepages"
        elif (mapping := resource.mapping) is not None:
            factor = mapping.capacity_multiplier if mapping.capacity_key else mapping.device_multiplier
            if factor is None or factor.nano <= 0:
                problem = "the multiplier of its mapping is not positive"
            elif mapping.capacity_key and mapping.capacity_key not in device.capacity:
                problem = f"the device has no capacity {mapping.capacity_key}"
        if (overhead := resource.overhead) is not None:
            parts = [part for part in (overhead.per_pod, overhead.per_container) if part is not None]
            if not parts or any(part.nano < 0 for part in parts):
                problem = "its overhead is negative, or has neither perPod nor perContainer"
        if problem:
            return f"device {device.name}: nodeAllocatableResources {name}: {problem}"
    return ""
