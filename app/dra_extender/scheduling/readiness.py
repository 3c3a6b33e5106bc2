"""Binding conditions: whether the devices of a claim are ready for the pod to be bound.

Promises: pure; time comes in as an argument.

Rules: Kubernetes 1.36, isClaimReadyForBinding and isClaimTimeout in
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go. The state of a device is found by driver, pool
and device; its share is not compared. Different from there: a failure is noticed even when an earlier device of the
claim is not ready yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dra_extender.api.meta import Condition, parse_time
from dra_extender.api.resource import DeviceID, DeviceRequestAllocationResult, ResourceClaim


class Readiness(msgspec.Struct, frozen=True):
    """`failed` is the reason why waiting is useless, or empty."""

    ready: bool
    failed: str = ""


def has_conditions(claim: ResourceClaim) -> bool:
    """Whether some allocated device must become ready before the pod may be bound."""
    allocation = claim.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def awaited(claim: ResourceClaim) -> bool:
    """True when pods may be retried until the devices are ready. A claim that is being deleted is for no pod."""
    return has_conditions(claim) and not claim.metadata.deletion_timestamp


def readiness(claim: ResourceClaim) -> Readiness:
    """Whether all devices of the claim with binding conditions are ready."""
    conditions: dict[DeviceID, Mapping[str, Condition]] = {}
    for entry in claim.status.devices:
        by_type = {condition.type: condition for condition in entry.conditions}
        conditions.setdefault((entry.driver, entry.pool, entry.device), by_type)
    ready = True
    for result in claim.allocation.devices.results if claim.allocation is not None else ():
        if result.binding_conditions:
            known = conditions.get(result.id, {})
            failed = _failed(claim, result, known)
            if failed:
                return Readiness(ready=False, failed=failed)
            ready = ready and all(_is_true(known, condition) for condition in result.binding_conditions)
    return Readiness(ready=ready)


def _failed(claim: ResourceClaim, result: DeviceRequestAllocationResult, known: Mapping[str, Condition]) -> str:
    for name in result.binding_failure_conditions:
        if _is_true(known, name):
            condition = known[name]
            said = f"reason={condition.reason}, message={condition.message}"
            return f"device binding failed: claim={claim.metadata.name}, {said}"
    return ""


def _is_true(known: Mapping[str, Condition], name: str) -> bool:
    condition = known.get(name)
    return condition is not None and condition.status == "True"


def deadline(claim: ResourceClaim, binding_seconds: float) -> float | None:
    """When the devices must be ready, as seconds since the epoch; None when the claim does not say since when."""
    allocation = claim.allocation
    if allocation is None or not allocation.allocation_timestamp or not has_conditions(claim):
        return None
    started = parse_time(allocation.allocation_timestamp)
    return None if started is None else started.timestamp() + binding_seconds


def seconds_to_timeout(claims: Iterable[ResourceClaim], now: datetime, binding_seconds: float) -> float:
    """Until the binding timeout of the first claim."""
    ends = [deadline(claim, binding_seconds) for claim in claims]
    # A little more, so that the timeout has passed when the wait ends.
    left = (end - now.timestamp() + 0.001 for end in ends if end is not None)
    return max(0.0, min(left, default=binding_seconds))


def unavailable(claim: ResourceClaim, now: datetime, binding_seconds: float) -> str:
    """Why the allocation cannot be used on any node: its devices failed, or were not ready in time. Empty otherwise."""
    state, limit = readiness(claim), deadline(claim, binding_seconds)
    late = not state.ready and not state.failed and limit is not None and limit < now.timestamp()
    return f"device binding timeout: claim={claim.metadata.name}" if late else state.failed
