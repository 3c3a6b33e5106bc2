"""What all binds of a service share, the pod of one bind as the API server has it, and the waits of pods in a gang.

Promises
- Only `BindContext` changes holds: for all claims of a pod, or for none. When a hold ends, it requeues refused pods and
  notifies the binds that wait for it.
- `LivePod` never returns a pod with another UID than the call's. Its write of the status, for kubelet, requires the
  version of the pod, so it never reaches a pod that another replica has bound. It removes the name of a claim for
  extended resources that an earlier bind has left.
- After a change of leader, a pod of a gang without a plan is bound only if the gang gets a plan. Pods of a gang that
  share a claim wait for the one that allocates it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.api.extender import ExtenderBindingArgs
from dra_extender.api.groups import group_of
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.ledger import HeldError, Hold
from dra_extender.scheduling.bind.failure import (
    REPLACED,
    STATUS_CHANGED,
    UNREADABLE,
    BindFailure,
    CheckActive,
    RetryPolicy,
    Unresolved,
    answered,
    retried,
)
from dra_extender.scheduling.claims import Unschedulable, claim_names
from dra_extender.scheduling.feasibility import NodeAllocation
from dra_extender.scheduling.gangs.controller import Gangs
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nodeallocatable import patch_of
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.outcomes import CONFLICTS
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.tentativeplans import TentativePlans

log = structlog.get_logger(__name__)


class BindContext(Handle, frozen=True, kw_only=True):
    """One for all binds of a service."""

    tentative_plans: TentativePlans
    gangs: Gangs
    clearer: Clearer
    usage: ResourcesInUse | None = None
    """What pods use of nodes besides devices, binds in progress included; None without DRANodeAllocatableResources."""
    locks: WeakValueDictionary[str, asyncio.Lock] = msgspec.field(default_factory=WeakValueDictionary)
    """By claim UID: binds write to a shared claim one after the other."""

    def hold_all(
        self, claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult], owner: str
    ) -> dict[str, Hold]:
        """Hold the devices for the claims of the pod with UID `owner`, all or none: by claim UID. Raises HeldError."""
        holds: dict[str, Hold] = {}
        ledger = self.event_handler.cluster.ledger
        try:
            for claim, allocation in zip(claims, allocations, strict=True):
                holds[claim.metadata.uid] = ledger.hold(claim, allocation, owner=owner)
        except HeldError:
            for hold in holds.values():
                ledger.release(hold)
            raise
        return holds

    def exchange(self, hold: Hold, claim: ResourceClaim) -> Hold:
        """Hold the same devices for the created claim instead of its placeholder. Raises HeldError."""
        ledger = self.event_handler.cluster.ledger
        ledger.release(hold)
        try:
            return ledger.hold(claim, hold.allocation, owner=hold.owner)
        except HeldError:
            self.requeue.improved()  # its other devices are free now
            raise

    def confirm(self, hold: Hold, written: ResourceClaim) -> None:
        """The held allocation is stored."""
        self.event_handler.cluster.ledger.confirm(hold, written)
        self._ended(hold)

    def release(self, hold: Hold) -> None:
        """The held allocation will not be written, or has been rolled back."""
        if self.event_handler.cluster.ledger.release(hold):
            self.requeue.improved()
        self._ended(hold)

    def _ended(self, hold: Hold) -> None:
        self.requeue.ended(hold.claim_uid)
        self.event_handler.signals.notify(hold.claim_uid)

    def report_rivals(self, claim: ResourceClaim, rivals: Iterable[ResourceClaim]) -> None:
        """Other claims have a device of `claim`: count, log, and an event on the claim."""
        self.observer.count(CONFLICTS, "device_taken")
        names = sorted(rival.metadata.key for rival in rivals)
        log.warning("a device is allocated to another claim as well", claim=claim.metadata.key, rivals=names)
        others = self.view.config.reader(claim.metadata.namespace).listed("claim", names)
        note = f"a device was allocated to {others} at the same time; this allocation is rolled back"
        self.ports.record_event(claim, "Warning", "DeviceConflict", note)


class LivePod:
    """The pod that a call of bind names, read from the API server: the watch may be behind."""

    def __init__(self, context: BindContext, args: ExtenderBindingArgs) -> None:
        self.key = f"{args.PodNamespace}/{args.PodName}"
        self.uid = args.PodUID
        self._args = args
        self._context = context
        self._view = context.view

    async def read(self, check_active: CheckActive) -> Pod | None:
        """The pod as stored now; None when it is gone. Raises BindFailure when it cannot be read."""
        try:
            return self._learned(await answered(self._read, self._view.config, check_active))
        except ApiError as error:
            log.warning("a pod cannot be read", pod=self.uid, error=repr(error))
            raise BindFailure(UNREADABLE) from None

    async def require(self, policy: RetryPolicy) -> Pod | None:
        """As `read`, with retries. Raises Unresolved."""
        try:
            return self._learned(await retried(self._read, policy, self._view.config, self._view.clock))
        except ApiError as error:
            if self._view.pods.get(self.uid) is None and self._view.pods.is_terminating(self.uid):
                return None  # the watch has shown that it is gone
            raise Unresolved(f"pod {self.key} cannot be read", error) from None

    async def is_bound_to(self, node: str, policy: RetryPolicy) -> bool:
        """True when the pod is bound to this node, by any writer. Raises Unresolved."""
        pod = self._view.pods.get(self.uid)
        if pod is None or not pod.spec.node_name:  # a binding never changes
            pod = await self.require(policy)
        return pod is not None and pod.spec.node_name == node

    async def write_status(
        self, pod: Pod, decision: NodeAllocation, claims: Collection[str], extended: str, check_active: CheckActive
    ) -> Pod:
        """Write the pod's status for this decision if it differs, and return the pod as stored. `claims`: the names of
        the pod's claims; `extended`: the name of its claim for extended resources, empty without one. Raises
        BindFailure.
        """
        config, ports = self._view.config, self._context.ports
        for _ in range(config.write_attempts):
            status = _status_patch(pod, decision, claims, extended)
            if not status:
                return pod
            check_active()
            patch = partial(ports.patch_pod_status, pod, status, version=pod.metadata.resource_version)
            try:
                stored = await answered(patch, config, check_active)
            except ConflictError:
                newer = await self.read(check_active)
                if newer is None or newer.spec.node_name:
                    raise BindFailure(REPLACED, "cancelled") from None
                pod = newer
            except NotFoundError:
                raise BindFailure(REPLACED, "cancelled") from None
            except ApiError as error:
                log.warning("the status of a pod was refused", pod=self.key, error=repr(error))
                raise BindFailure("the API server refused the pod's status") from None
            else:
                self._context.event_handler.replied(stored)
                return stored
        raise BindFailure(STATUS_CHANGED, "conflict")

    async def _read(self) -> Pod | None:
        return await self._context.ports.read_pod(self._args.PodNamespace, self._args.PodName)

    def _learned(self, pod: Pod | None) -> Pod | None:
        if pod is None or pod.metadata.uid != self.uid:
            return None
        self._context.event_handler.replied(pod)
        return pod


def reported(pod: Pod) -> object:
    """The parts of the pod's status that describe its devices, to compare."""
    status = pod.status
    return claim_names(pod), status.extended_resource_claim_status, status.node_allocatable_resource_claim_statuses


def _status_patch(pod: Pod, decision: NodeAllocation, claims: Collection[str], extended: str) -> dict[str, Any]:
    """See `write_status`; empty when there is nothing to write."""
    status, known = patch_of(pod, decision.statuses), pod.status.extended_resource_claim_status
    if decision.requests is not None:
        return status | decision.requests.status(extended)
    if known is not None and known.resource_claim_name not in claims:
        return status | {"extendedResourceClaimStatus": None}  # an earlier bind to another node has left it
    return status


async def plan_gang(context: BindContext, pod: Pod, node: str, seconds: float) -> None:
    """Plan the gang of the pod, unless it has a plan for enough members. Raises BindFailure when the pod cannot be on
    the node.
    """
    gangs = context.gangs
    if group_of(pod) is None or gangs.has_full_plan(context.view, pod):
        return
    found = await context.deferred.decide_within(seconds, pod, partial(gangs.plan_for_bind, node=node))
    if found is not None:
        gangs.keep(found[0], pod, (node,), found[1])
        if not found[1].node:
            raise BindFailure(found[1].reason or found[1].error, "refused")


async def is_allocated_by_member(
    context: BindContext, pod: Pod, decision: object, check_active: CheckActive, seconds: float
) -> bool:
    """Wait up to `seconds` while another pod of the gang allocates a claim that they share. True when that bind has
    ended, and the caller has to decide again.
    """
    if not isinstance(decision, Unschedulable) or not decision.awaiting or group_of(pod) is None:
        return False
    view, uid = context.view, decision.awaiting

    def ended() -> bool:
        check_active()
        claim = view.ledger.by_uid(uid)
        return claim is None or not view.in_flight(claim)

    return await context.event_handler.signals.until(ended, (uid,), seconds)
