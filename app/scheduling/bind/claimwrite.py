"""One claim of one bind: from the decision to the stored status, and back.

Promises
- The finalizer is stored before the status; allocation and reservation are one write; an allocation is written only
  onto a claim that was unallocated at the version the write is made for.
- The reservation of somebody else is never removed, and an allocation is taken back only while nobody else counts on
  it. Only what this bind wrote is taken back; with `clear` also what an attempt long over has left.
- A bind that finds the pod's reservation in place takes it over: it marks the claim, and whoever made the reservation
  finds the mark before undoing it. So two replicas that bind one pod do not work against each other.
- A lost reply is cleared up before anything else happens: what is found then is taken over, not taken for ours. When
  a write may still arrive late and the bind is given up, a later write to the claim makes it fail; until then the
  devices stay held.

Rules: Kubernetes 1.36, bindClaim and Unreserve in
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from app.api.core import Pod
from app.api.errors import ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from app.api.resource import FINALIZER, MAX_CONSUMERS, AllocationResult, ResourceClaim
from app.devices.ledger import HeldError, Hold
from app.scheduling.bind.actions import Actions
from app.scheduling.bind.failure import TAKEN, BindFailure
from app.scheduling.bind.patience import Unanswered, answered, rounds
from app.scheduling.claims import ADOPTED, consumer, full_reason
from app.scheduling.outcomes import CLAIM_WRITES_UNDONE, CONFLICTS, UNANSWERED_WRITES, UndoResult

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
        self._sent: float | None = None
        """When the first status write was sent."""
        self._doubtful = ""
        self._mark = claim.metadata.annotations.get(ADOPTED)

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid

    @property
    def touched(self) -> bool:
        """Whether a write of ours to the status is or may be stored."""
        return self._stored or bool(self._doubtful)

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
            self._refresh()
            await self._write(go_on)

    async def _write(self, go_on: GoOn) -> None:
        conflicts = 0
        async for _ in rounds(self._view.limits):
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
                if conflicts >= self._view.limits.write_attempts:
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
                raise BindFailure(self._text(f"cannot be allocated or reserved: {_said(error)}")) from None

    def _refresh(self) -> None:
        """Catch up with what others have learned about the claim."""
        newest = self._view.ledger.by_uid(self.uid)
        if newest is not None and newest is not self.claim:
            self._learned(newest)

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
            self._learned(await self._act.ports.annotate(self.claim, {ADOPTED: mark}))
            self._mark, self._adopted = mark, True
            return
        if self.allocation is not None and FINALIZER not in self.claim.metadata.finalizers:
            started = self._view.clock.monotonic()
            self._learned(await self._act.ports.add_finalizer(self.claim))
            self._act.observer.took("finalizer", self._view.clock.monotonic() - started)
            self._check()
            go_on()
        started = self._view.clock.monotonic()
        written = await self._write_status()
        self._act.observer.took("status", self._view.clock.monotonic() - started)
        self._stored = True
        self._learned(written)

    async def _write_status(self) -> ResourceClaim:
        """The status write. From the moment it is sent until its outcome is known the claim is in doubt."""
        ports, claim = self._act.ports, self.claim
        consumers = claim.status.reserved_for
        if not claim.reserved_for(self.consumer.uid):
            consumers = (*consumers, self.consumer)
        earlier, self._doubtful = self._doubtful, claim.metadata.resource_version
        if self._sent is None:
            self._sent = self._view.clock.monotonic()
        self._mark = claim.metadata.annotations.get(ADOPTED)
        try:
            if self.allocation is None:
                return await ports.write_status(claim, reserved_for=consumers)
            return await ports.write_status(claim, allocation=self.allocation, reserved_for=consumers)
        except OutcomeUnknownError:
            raise
        except ApiError:
            self._doubtful = earlier
            raise

    async def _read(self, go_on: GoOn, *, insist: bool = False) -> None:
        """The claim as stored now. Raises BindFailure when it is gone, or, without `insist`, cannot be read."""
        meta = self.claim.metadata
        read = partial(self._act.ports.read_claim, meta.namespace, meta.name)
        try:
            found = await answered(read, self._view.limits, go_on, insist=insist)
        except ApiError as error:
            raise BindFailure(self._text(f"cannot be read: {_said(error)}")) from None
        if found is None or found.metadata.uid != meta.uid:
            self._act.intake.gone(self.claim)
            raise BindFailure(self._text("got deleted in the meantime"), "conflict")
        self._learned(found)

    def _learned(self, claim: ResourceClaim) -> None:
        """A reply. Once the claim has left the version that a doubtful write was made for, that write is stored or
        never will be. Which of the two nobody can know: another replica that binds the pod writes the same.
        """
        if 0 < claim.metadata.version < self.claim.metadata.version:
            return
        if claim.metadata.resource_version != self._doubtful:
            self._doubtful = ""
        self.claim = claim
        if self.hold is not None and self._shows_ours(claim):
            self._act.holds.confirm(self.hold, claim)
        else:
            self._act.intake.learn(claim)

    # --- back -------------------------------------------------------------------------------------------------------

    async def undo(self, *, clear: bool) -> None:
        """Take back what is or may be stored, and let the devices go. Ends when the server has answered."""
        if self.touched or clear:
            self._act.observer.count(CLAIM_WRITES_UNDONE, await self._undo(clear))
        self.let_go()

    async def _undo(self, clear: bool) -> UndoResult:
        """What was done. Once an undo of unknown outcome may have been carried out, what is stored is nobody's to take
        back: another replica may have made it since.
        """
        self._refresh()
        sent = ""
        async for number in rounds(self._view.limits):
            try:
                if number or self._doubtful:
                    await self._read(lambda: None, insist=True)
            except BindFailure:
                return "gone"
            if sent and sent != self.claim.metadata.resource_version:
                return "left"
            try:
                return await self._undo_once(clear)
            except NotFoundError:
                return "gone"
            except OutcomeUnknownError:
                sent = self.claim.metadata.resource_version
            except (ConflictError, *Unanswered):
                continue
            except ApiError as error:
                log.warning("a claim's write was not undone", claim=self.claim.metadata.key, error=repr(error))
                return "failed"
        raise AssertionError("rounds never end")

    async def _undo_once(self, clear: bool) -> UndoResult:
        """What was done. Raises ApiError."""
        ports, claim = self._act.ports, self.claim
        if claim.allocation is None:
            if not self._doubtful:
                return "gone"
            # The status write may still arrive; moving the claim to another version makes it fail.
            self._learned(await ports.remove_finalizer(claim))
            return "fenced"
        abandoned = clear and self._view.settled(claim)
        taken_over = claim.metadata.annotations.get(ADOPTED) != self._mark
        if self.consumer.resource != "pods" or taken_over or not (self._may_be_ours() or abandoned):
            return "left"
        rest = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != self.consumer.uid)
        ours = self.allocation is not None and same_devices(claim.allocation, self.allocation)
        if not rest and (ours or abandoned):
            self._learned(await ports.deallocate(claim))
            return "deallocated"
        if rest != claim.status.reserved_for:
            self._learned(await ports.write_status(claim, reserved_for=rest))
            return "unreserved"
        return "gone"

    def _may_be_ours(self) -> bool:
        """Whether what is stored can be what we wrote. After a long outage it may be what somebody else wrote, who has
        cleared ours meanwhile: nobody does so sooner.
        """
        if self._sent is None or not self.touched:
            return False
        return self._view.clock.monotonic() < self._sent + self._view.limits.settled_seconds

    async def leave(self) -> None:
        """Let everything that is stored stay. The hold ends when it is known what that is."""
        if self._doubtful:
            with suppress(BindFailure):
                await self._read(lambda: None, insist=True)
        if self.hold is not None and self.hold.written_version is None:
            self.let_go()

    def let_go(self) -> None:
        """Release the hold. What is stored stays accounted for."""
        if self.hold is not None:
            self._act.holds.release(self.hold)
            self.hold = None


def _said(error: ApiError) -> str:
    """What the server said, in a constant text."""
    return f"refused with {error.status} {error.reason}".rstrip()


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
