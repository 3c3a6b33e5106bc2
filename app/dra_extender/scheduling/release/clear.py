"""Releasing the devices of one unused claim.

Promises
- A claim with a bound pod is kept. One write clears the allocation. It requires the version of the claim that the
  decision was made on, so a later reservation or mark wins. Before the write, each pod of the claim is read and changed
  in the API server. A binding that is under way then fails, because it requires the older version. After the last
  answer the watched state is checked again, with no await before the write.
- The pods of a claim that is reserved for a PodGroup are the pods of the group that name it. The claim is kept when no
  such pod is known, or when the watch may not have shown all of them.
- While the write is in progress, no bind of this service relies on the claim.
- After a conflict, the claim is read and the caller decides again. A refused or undecodable write is reported once, and
  retried after growing pauses, or at once when the claim has changed.

Rules: Kubernetes 1.36, syncClaim of pkg/controller/resourceclaim/controller.go, which deallocates in one update at the
version it has looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.api.meta import ObjectKey, format_time
from dra_extender.api.resource import FINALIZER, ResourceClaim
from dra_extender.devices.validity import ObjectProblem
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.outcomes import ALLOCATIONS_CLEARED, CLEAR_ERRORS, ClearReason
from dra_extender.scheduling.waiting import Backoffs

log = structlog.get_logger(__name__)

RELEASED = "dra-extender.dev/ClaimReleased"
"""A condition of pods: the claim that was released last, and its version. Its only purpose is to change the pod. Users
can fill the annotations of a pod up to the limit, so that none can be added; they cannot write conditions.
"""

MOST_PROBLEMS = 1_000


class Clearer:
    """`clearing`: the UIDs of the claims that are being cleared. Only the clearer writes to it."""

    def __init__(self, handle: Handle, clearing: set[str]) -> None:
        self._handle = handle
        view = self._view = handle.view
        self._clearing = clearing
        self._backoffs: Backoffs[tuple[str, str]] = Backoffs(view.clock, view.config)
        self._refused: LRUCache[str, tuple[ResourceClaim, str]] = LRUCache(MOST_PROBLEMS)
        """By UID, with the error."""

    @property
    def problems(self) -> Sequence[ObjectProblem]:
        """The claims whose last release failed, and that are unchanged since."""
        advice = "grant the permission, as manifests/rbac does, or delete the claim's pods; its devices stay allocated"
        return [
            ObjectProblem(ObjectKey("ResourceClaim", claim.metadata.key), f"cannot be released: {why}", advice)
            for claim, why in list(self._refused.values())
            if self._is_current(claim)
        ]

    def may_try(self, claim: ResourceClaim) -> bool:
        """False while the claim is being cleared, or during the pause after the API server refused this version."""
        return claim.metadata.uid not in self._clearing and self._backoffs.over(_version(claim))

    async def clear(self, claim: ResourceClaim, reason: ClearReason, note: str) -> None:
        """Clear allocation, reservations and device states. `reason` is for metrics, `note` for the event."""
        if not self.may_try(claim):
            return
        with self._marked(claim):
            try:
                if await self.fence(claim) or not self._is_current(claim) or self._is_in_use(claim):
                    return
                self._handle.event_handler.replied(await self._handle.ports.deallocate(claim))
            except NotFoundError:
                self._handle.event_handler.gone(claim)
                return
            except ApiError as error:
                await self._failed(claim, reason, error)
                return
        self._succeeded(claim)
        self._handle.observer.count(ALLOCATIONS_CLEARED, reason)
        self._handle.ports.record_event(claim, "Normal", "DevicesReleased", note)

    async def discard(self, claim: ResourceClaim) -> None:
        """Delete an unallocated claim for extended resources."""
        if claim.allocation is not None or not self.may_try(claim):
            return
        with self._marked(claim):
            try:
                if FINALIZER in claim.metadata.finalizers:
                    claim = await self._handle.ports.remove_finalizer(claim)
                    self._handle.event_handler.replied(claim)
                await self._handle.ports.delete_claim(claim)
            except NotFoundError:
                pass
            except ApiError as error:
                await self._failed(claim, "leftover", error)
                return
        self._succeeded(claim)
        self._handle.event_handler.gone(claim)
        self._handle.observer.count(ALLOCATIONS_CLEARED, "leftover")

    @contextmanager
    def _marked(self, claim: ResourceClaim) -> Iterator[None]:
        self._clearing.add(claim.metadata.uid)
        try:
            yield
        finally:
            self._clearing.discard(claim.metadata.uid)
            self._handle.requeue.improved()

    async def fence(self, claim: ResourceClaim, only: str = "") -> bool:
        """True when the API server shows that one of the claim's pods is bound. Changes the others, so that a late
        binding of a paused replica fails. `only`: look only at the pod with this UID. Raises ApiError.
        """
        groups = False
        for consumer in claim.status.reserved_for:
            if only not in ("", consumer.uid):
                continue
            if consumer.resource != "pods":
                groups = True
                continue
            pod = await self._change_pod(claim, consumer.name, consumer.uid)
            if pod is not None and pod.spec.node_name:
                return True
        return groups and await self._fence_group(claim)

    async def _fence_group(self, claim: ResourceClaim) -> bool:
        """As `fence`, for the pods of a PodGroup; also True when one of them may be unknown. A pod whose bind marked
        the claim is older than this version of it, so the watch shows the pod before a change that is made now.
        """
        done: set[str] = set()
        for first in (True, False):
            newest = 0
            for user in self._view.users(claim):
                if user is None or not self._view.config.may_clear_for(user.spec.scheduler_name):
                    return True
                if user.metadata.uid in done:
                    continue
                done.add(user.metadata.uid)
                pod = await self._change_pod(claim, user.metadata.name, user.metadata.uid)
                if pod is not None and pod.spec.node_name:
                    return True
                newest = max(newest, pod.metadata.version if pod is not None else 0)
            if (first and not newest) or not await self._is_watched(newest, done):
                return True
        return False

    async def _is_watched(self, version: int, uids: Iterable[str]) -> bool:
        """Wait until the watch has shown this version of one of these pods. False when it has not in time."""
        limit = self._view.config.watch_seconds
        return await self._handle.event_handler.signals.until(lambda: self._view.pods.watched >= version, uids, limit)

    async def _change_pod(self, claim: ResourceClaim, name: str, uid: str) -> Pod | None:
        """The pod as stored now, with a new version unless it is bound; None when it is gone. Raises ApiError."""
        pod = await self._handle.ports.read_pod(claim.metadata.namespace, name)
        if pod is None or pod.metadata.uid != uid:
            return None
        if not pod.spec.node_name:
            condition = {
                "type": RELEASED,
                "status": "True",
                "reason": "DevicesReleased",
                "message": f"claim {claim.metadata.name} is released at version {claim.metadata.resource_version}",
                "lastTransitionTime": format_time(self._view.clock.wall()),
            }
            try:
                pod = await self._handle.ports.patch_pod_status(pod, {"conditions": [condition]})
            except NotFoundError:
                return None
        self._handle.event_handler.replied(pod)
        return pod

    def _is_current(self, claim: ResourceClaim) -> bool:
        known = self._view.ledger.by_uid(claim.metadata.uid)
        return known is not None and known.metadata.resource_version == claim.metadata.resource_version

    def _is_in_use(self, claim: ResourceClaim) -> bool:
        """True when a pod of the claim is known to be bound, or is being bound by this service; also if the claim is
        reserved for a PodGroup and not all its pods may be known.
        """
        groups = any(entry.resource != "pods" for entry in claim.status.reserved_for)
        bound = any(pod.spec.node_name if pod is not None else groups for pod in self._view.users(claim))
        return bound or self._view.is_being_bound(claim)

    async def _failed(self, claim: ResourceClaim, reason: ClearReason, error: ApiError) -> None:
        """Pause before the next try, and read the claim again after a conflict."""
        self._handle.observer.count(CLEAR_ERRORS, reason)
        self._backoffs.failed(_version(claim))
        uid, why = claim.metadata.uid, repr(error)
        if isinstance(error, ConflictError):
            try:
                if (found := await self._handle.stored(claim)) is not None:
                    self._handle.event_handler.replied(found)
            except ApiError as unread:
                log.info("a claim could not be read after a conflict", claim=claim.metadata.key, error=repr(unread))
            return
        if self._refused.get(uid, (claim, ""))[1] != why:
            log.warning("the API server did not clear an unused claim, retrying", claim=claim.metadata.key, error=why)
        self._refused[uid] = claim, why

    def _succeeded(self, claim: ResourceClaim) -> None:
        self._refused.pop(claim.metadata.uid, None)
        self._backoffs.forget(_version(claim))


def _version(claim: ResourceClaim) -> tuple[str, str]:
    return claim.metadata.uid, claim.metadata.resource_version
