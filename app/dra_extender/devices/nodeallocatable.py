"""What devices take of the CPU, memory and huge pages that their node has allocatable (DRANodeAllocatableResources).

Promises: pure. Amounts are exact. No content of a device makes it raise anything else than NotConsumedError: the API
server accepts only devices whose amounts make sense.

Rules: Kubernetes 1.37, plugins/dynamicresources/nodeallocatabledynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dra_extender.api.core import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
)
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    DeviceRequestAllocationResult,
    NodeAllocatableMapping,
    NodeAllocatableResource,
    ResourceClaim,
)

_ONE = 10**9

Taken = Iterable[tuple[DeviceRequestAllocationResult, Mapping[str, NodeAllocatableResource]]]
"""Allocated devices, with what each takes, by resource."""


class NotConsumedError(ValueError):
    """A device maps a capacity to a resource, and its allocation does not say how much of the capacity it consumes."""


def amounts_of(claim: ResourceClaim, taken: Taken) -> NodeAllocatableResourceClaimStatus | None:
    """The entry of the claim in pod.status.nodeAllocatableResourceClaimStatuses, without the names of claim and
    containers; None if its devices take nothing. Raises NotConsumedError.
    """
    mapping: dict[str, Quantity] = {}
    overhead: dict[str, tuple[Quantity | None, Quantity | None]] = {}
    for result, resources in taken:
        for name, resource in resources.items():
            if resource.mapping is not None and (amount := _mapped(claim, name, resource.mapping, result)) is not None:
                mapping[name] = mapping[name] + amount if name in mapping else amount
            if (more := resource.overhead) is not None:
                pod, container = overhead.get(name, (None, None))
                overhead[name] = _sum(pod, more.per_pod), _sum(container, more.per_container)
    if not mapping and not overhead:
        return None
    return NodeAllocatableResourceClaimStatus(
        mapping=tuple(NodeAllocatableMappedResources(*item) for item in sorted(mapping.items())),
        overhead=tuple(NodeAllocatableOverheadResources(name, *overhead[name]) for name in sorted(overhead)),
    )


def _mapped(
    claim: ResourceClaim, name: str, mapping: NodeAllocatableMapping, result: DeviceRequestAllocationResult
) -> Quantity | None:
    if not mapping.capacity_key:
        return mapping.device_multiplier
    if not result.consumed_capacity:
        raise NotConsumedError(
            f"claim {claim.metadata.key}, device {result.device}: ConsumedCapacity is nil, but Capacity key "
            f"'{mapping.capacity_key}' is set in NodeAllocatableResources for resource {name}"
        )
    consumed, factor = result.consumed_capacity.get(mapping.capacity_key), mapping.capacity_multiplier
    if consumed is None or factor is None or factor.nano == _ONE:
        return consumed
    return Quantity(-(-consumed.nano * factor.nano // _ONE), consumed.format)


def _sum(amount: Quantity | None, more: Quantity | None) -> Quantity | None:
    return amount + more if amount is not None and more is not None else amount or more
