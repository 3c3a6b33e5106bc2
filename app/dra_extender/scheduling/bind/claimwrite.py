"""One claim of one bind: from the decision to the stored status. `Undo` is the way back.

Promises
- The finalizer is stored before the status; allocation and reservation are one write; an allocation is written only
  onto a claim that was unallocated at the version the write is made for.
- A bind that finds the pod's reservation in place takes it over: it marks the claim, and whoever made the reservation
  finds the mark before undoing it. So two replicas that bind one pod do not work against each other.
- A lost reply is cleared up before anything else happens: what is found then is taken over, not taken for ours.

Rules: Kubernetes 1.36, bindClaim in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from dra_extender.api.resource import FINALIZER, MAX_CONSUMERS, AllocationResult, ResourceClaim
from dra_extender.devices.ledger import HeldError, Hold
from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.failure import TAKEN, BindFailure, said
from dra_extender.scheduling.bind.retry import Unanswered, answered, attempts
from dra_extender.scheduling.claims import ADOPTED, consumer, full_reason
from dra_extender.scheduling.outcomes import CONFLICTS, UNANSWERED_WRITES

log = structlog.get_logger(__name__)

GoOn = Callable[[], None]
"""Raises BindFailure when the bind must not start another write."""


class ClaimWrite:
    """`claim` is the newest version known. With `allocation` and `hold` it is to be allocated, else only reserved."""

    def __init__(
        self, actions: Actions, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None, hold: Hold | None
    ) -> None:
        self._act = actions
        self._view = actions.view
        self.claim = claim
        self.allocation = allocation
        self.hold = hold
        self.consumer = consumer(claim, pod, actions.view.features)
        self._expected = allocation or claim.allocation
        self._stored = False
        self._adopted = False
        self.sent: float | None = None
        """When the first status write was sent."""
        self.doubtful = ""
        """The version that a status write of unknown outcome was made for."""
        self.mark = claim.metadata.annotations.get(ADOPTED)
        """The mark on the claim that the last write was made for, or that the bind has made."""

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid

    @property
    def touched(self) -> bool:
        """Whether a write of ours to the status is or may be stored."""
        return self._stored or bool(self.doubtful)

    def adopt(self, created: ResourceClaim) -> None:
        """The claim exists now: what was held for its stand-in is held for itself. No await, so nobody gets between.

        Raises BindFailure when somebody else's write has taken a device meanwhile.
        """
        if self.hold is None:
            raise ValueError("only a claim to be allocated can be created")
        self._act.intake.learn(created)
        self.claim = created
        stand_in, self.hold = self.hold, None
        try:
            self.hold = self._act.holds.exchange(stand_in, created)
        except HeldError:
            raise BindFailure(TAKEN, "conflict") from None

    # --- forward ----------------------------------------------------------------------------------------------------

    async def write(self, go_on: GoOn) -> None:
        """Store finalizer, allocation and reservation as needed. Raises BindFailure.

        Binds that share the claim take turns, so that they do not run into conflicts with each other.
        """
        lock = self._act.locks.setdefault(self.uid, asyncio.Lock())
        async with lock:
            self.refresh()
            await self._write(go_on)

    async def _write(self, go_on: GoOn) -> None:
        conflicts = 0
        async for _ in attempts(self._view.config):
            self._check()
            if self._is_complete() and (self._stored or self._adopted):
                return
            go_on()
            try:
                await self._write_once(go_on)
                return
            except ConflictError:
                conflicts += 1
                self._act.observer.count(CONFLICTS, "claim_changed")
                if conflicts >= self._view.config.write_attempts:
                    raise BindFailure(self._text("changes too often"), "conflict") from None
                await self._read(go_on)
            except NotFoundError:
                self._act.intake.gone(self.claim)
                raise BindFailure(self._text("got deleted in the meantime"), "conflict") from None
            except OutcomeUnknownError:
                self._act.observer.count(UNANSWERED_WRITES, "claim")
                await self._read(go_on)
            except Unanswered:
                continue
            except ApiError as error:
                log.warning("a claim's write was refused", claim=self.claim.metadata.key, error=repr(error))
                raise BindFailure(self._text(f"cannot be allocated or reserved: {said(error)}")) from None

    def refresh(self) -> None:
        """Catch up with what others have learned about the claim."""
        newest = self._view.ledger.by_uid(self.uid)
        if newest is not None and newest is not self.claim:
            self.learned(newest)

    def _text(self, what: str) -> str:
        return f"claim {self.claim.metadata.key} {what}"

    def _check(self) -> None:
        """Whether the claim still is what the decision was made on, and its devices still are for us."""
        claim, expected = self.claim, self._expected
        if claim.metadata.deletion_timestamp:
            raise BindFailure(self._text("got deleted in the meantime"), "conflict")
        if self.allocation is None:
            if claim.allocation is None:
                raise BindFailure(self._text("got deallocated elsewhere in the meantime"), "conflict")
            if not same_devices(claim.allocation, expected):
                raise BindFailure(self._text("got allocated elsewhere in the meantime"), "conflict")
        elif claim.allocation is not None and not self._shows_ours(claim):
            raise BindFailure(self._text("got allocated elsewhere in the meantime"), "conflict")
        if len(claim.status.reserved_for) >= MAX_CONSUMERS and not claim.reserved_for(self.consumer.uid):
            raise BindFailure(full_reason(claim), "refused")
        self._check_devices()

    def _check_devices(self) -> None:
        """Whether nobody has written onto the devices since the decision. A write that would have to be taken back is
        better not made: kube-scheduler's own plugin takes a device for free as soon as one of its claims lets it go.
        """
        if self.hold is not None and not self.touched and self._view.ledger.contested(self.hold):
            self._act.observer.count(CONFLICTS, "device_taken")
            raise BindFailure(TAKEN, "conflict")

    def _shows_ours(self, claim: ResourceClaim) -> bool:
        """Whether the stored status is what we write, whoever wrote it."""
        return same_devices(claim.allocation, self._expected) and claim.reserved_for(self.consumer.uid)

    def _is_complete(self) -> bool:
        return self.claim.allocation is not None and self.claim.reserved_for(self.consumer.uid)

    async def _write_once(self, go_on: GoOn) -> None:
        if self._is_complete():
            mark = uuid.uuid4().hex
            self.learned(await self._act.ports.annotate(self.claim, {ADOPTED: mark}))
            self.mark, self._adopted = mark, True
            return
        if self.allocation is not None and FINALIZER not in self.claim.metadata.finalizers:
            started = self._view.clock.monotonic()
            self.learned(await self._act.ports.add_finalizer(self.claim))
            self._act.observer.took("finalizer", self._view.clock.monotonic() - started)
            self._check()
            go_on()
        started = self._view.clock.monotonic()
        written = await self._write_status()
        self._act.observer.took("status", self._view.clock.monotonic() - started)
        self._stored = True
        self.learned(written)

    async def _write_status(self) -> ResourceClaim:
        """The status write. From the moment it is sent until its outcome is known the claim is in doubt."""
        ports, claim = self._act.ports, self.claim
        consumers = claim.status.reserved_for
        if not claim.reserved_for(self.consumer.uid):
            consumers = (*consumers, self.consumer)
        earlier, self.doubtful = self.doubtful, claim.metadata.resource_version
        if self.sent is None:
            self.sent = self._view.clock.monotonic()
        self.mark = claim.metadata.annotations.get(ADOPTED)
        try:
            if self.allocation is None:
                return await ports.write_status(claim, reserved_for=consumers)
            return await ports.write_status(claim, allocation=self.allocation, reserved_for=consumers)
        except OutcomeUnknownError:
            raise
        except ApiError:
            self.doubtful = earlier
            raise

    async def _read(self, go_on: GoOn) -> None:
        """The claim as stored now. Raises BindFailure when it is gone or cannot be read."""
        meta = self.claim.metadata
        read = partial(self._act.ports.read_claim, meta.namespace, meta.name)
        try:
            found = await answered(read, self._view.config, go_on)
        except ApiError as error:
            raise BindFailure(self._text(f"cannot be read: {said(error)}")) from None
        if found is None or found.metadata.uid != meta.uid:
            self._act.intake.gone(self.claim)
            raise BindFailure(self._text("got deleted in the meantime"), "conflict")
        self.learned(found)

    def learned(self, claim: ResourceClaim) -> None:
        """A reply. Once the claim has left the version that a doubtful write was made for, that write is stored or
        never will be. Which of the two nobody can know: another replica that binds the pod writes the same.
        """
        if 0 < claim.metadata.version < self.claim.metadata.version:
            return
        if claim.metadata.resource_version != self.doubtful:
            self.doubtful = ""
        self.claim = claim
        if self.hold is not None and self._shows_ours(claim):
            self._act.holds.confirm(self.hold, claim)
        else:
            self._act.intake.learn(claim)

    def let_go(self) -> None:
        """Release the hold. What is stored stays accounted for."""
        if self.hold is not None:
            self._act.holds.release(self.hold)
            self.hold = None


def same_devices(one: AllocationResult | None, other: AllocationResult | None) -> bool:
    """Whether two allocations name the same devices and shares for the same requests. Texts that a server may write
    anew (amounts, parameters) are left out.
    """
    if one is None or other is None:
        return False
    return _names(one) == _names(other)


def _names(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    return [
        (result.request, result.driver, result.pool, result.device, result.share_id)
        for result in allocation.devices.results
    ]
