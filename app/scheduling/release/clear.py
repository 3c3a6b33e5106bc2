"""Taking an allocation back that nobody uses.

Promises: an allocation is cleared only at the version it was judged by, so a reservation made meanwhile wins, and never
under a pod that is bound: that is asked of the API server, because the watch of pods may be behind. While the write is
on its way no bind of ours relies on the claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import structlog

from app.api.errors import ApiError, NotFoundError
from app.api.resource import FINALIZER, ResourceClaim
from app.scheduling.intake import Intake
from app.scheduling.outcomes import ALLOCATIONS_CLEARED, CLEAR_ERRORS, ClearReason
from app.scheduling.ports import Observer, Ports
from app.scheduling.wakeups import Wakeups

log = structlog.get_logger(__name__)


class Clearer(msgspec.Struct, frozen=True, kw_only=True):
    """`clearing` are the UIDs of the claims it is at work on; nobody else writes to it."""

    ports: Ports
    intake: Intake
    wakeups: Wakeups
    observer: Observer
    clearing: set[str]

    async def clear(self, claim: ResourceClaim, reason: ClearReason, note: str) -> bool:
        """Clear allocation, reservations and device states. `reason` is counted, `note` is for people."""
        if claim.metadata.uid in self.clearing:
            return False
        with self._at_work(claim):
            try:
                if await self._runs_somewhere(claim):
                    return False
                self.intake.learn(await self.ports.deallocate(claim))
            except NotFoundError:
                self.intake.gone(claim)
                return True
            except ApiError as error:
                # Whatever happened, the watch will show it; the caller judges again.
                self.observer.count(CLEAR_ERRORS, reason)
                log.info("an unused allocation was not cleared", claim=claim.metadata.key, error=repr(error))
                return False
        self.observer.count(ALLOCATIONS_CLEARED, reason)
        self.ports.record_event(claim, "Normal", "DevicesReleased", note)
        return True

    async def discard(self, claim: ResourceClaim) -> bool:
        """Remove a claim that we made for extended resources and that is not allocated. False when it may be left."""
        if claim.metadata.uid in self.clearing or claim.allocation is not None:
            return False
        with self._at_work(claim):
            try:
                if FINALIZER in claim.metadata.finalizers:
                    claim = await self.ports.remove_finalizer(claim)
                    self.intake.learn(claim)
                await self.ports.delete_claim(claim)
            except NotFoundError:
                pass
            except ApiError as error:
                self.observer.count(CLEAR_ERRORS, "leftover")
                log.info("a claim for extended resources was not removed", claim=claim.metadata.key, error=repr(error))
                return False
        self.intake.gone(claim)
        self.observer.count(ALLOCATIONS_CLEARED, "leftover")
        return True

    @contextmanager
    def _at_work(self, claim: ResourceClaim) -> Iterator[None]:
        self.clearing.add(claim.metadata.uid)
        try:
            yield
        finally:
            self.clearing.discard(claim.metadata.uid)
            self.wakeups.improved()

    async def _runs_somewhere(self, claim: ResourceClaim) -> bool:
        """True when one of the claim's pods is bound, as stored now. Raises ApiError."""
        for consumer in claim.status.reserved_for:
            pod = await self.ports.read_pod(claim.metadata.namespace, consumer.name)
            if pod is not None and pod.metadata.uid == consumer.uid:
                self.intake.learn_pod(pod)
                if pod.spec.node_name:
                    return True
        return False
