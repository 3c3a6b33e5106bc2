"""What people are told of an attempt to bind: events on the pod and its claims."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.claimwrite import ClaimWrite
from dra_extender.scheduling.outcomes import CONFLICTS

log = structlog.get_logger(__name__)


def allocated(actions: Actions, pod: Pod, writes: Iterable[ClaimWrite], node: str, choice: str) -> None:
    """One event, on the pod: what this attempt allocated, if anything, and what a policy had to do with it."""
    told: list[str] = []
    for write in writes:
        if write.allocation is not None:
            devices = ", ".join("/".join(result.id) for result in write.allocation.devices.results) or "no devices"
            told.append(f"claim {write.claim.metadata.name}: allocated {devices} on node {node}")
    if told:
        note = "; ".join(told) + (choice and f", {choice}")
        actions.ports.record_event(pod, "Normal", "DevicesAllocated", note)


def rivals(actions: Actions, claim: ResourceClaim, others: Iterable[ResourceClaim]) -> None:
    """Others hold what `claim` was given: counted, logged, and an event on the claim."""
    actions.observer.count(CONFLICTS, "device_taken")
    names = ", ".join(sorted(other.metadata.key for other in others))
    log.warning("a device is allocated to another claim as well", claim=claim.metadata.key, rivals=names)
    note = f"a device was allocated to {names} at the same time; this allocation is taken back"
    actions.ports.record_event(claim, "Warning", "DeviceConflict", note)
