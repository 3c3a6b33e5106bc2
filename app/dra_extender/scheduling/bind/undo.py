"""Taking back what one bind has, or may have, written to one claim.

Promises
- The reservation of somebody else is never removed, and an allocation is taken back only while nobody else counts on
  it. Only what the bind wrote is taken back; with `clear` also what an attempt long over has left.
- Each write is made for the version that was judged: what changed in between is looked at again.
- When a write may still arrive late, a later write to the claim makes it fail; until that is known to be stored the
  devices stay held.
- Every call ends: what is refused, cannot be decoded or is not answered raises Undecided, with the devices held, and
  may be tried again at any later time.

Rules: Kubernetes 1.36, Unreserve in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from dra_extender.api.errors import ApiError, NotFoundError, OutcomeUnknownError
from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.claimwrite import ClaimWrite, same_devices
from dra_extender.scheduling.bind.failure import Undecided
from dra_extender.scheduling.bind.retry import RetryPolicy, retried
from dra_extender.scheduling.claims import ADOPTED
from dra_extender.scheduling.outcomes import CLAIM_WRITES_UNDONE, UndoResult

T = TypeVar("T")


class Undo:
    """`run` or `leave` it until one of them returns."""

    def __init__(self, actions: Actions, write: ClaimWrite, *, clear: bool) -> None:
        self.write = write
        self._act = actions
        self._view = actions.view
        self._clear = clear
        self._failed_at = ""
        """The version of the claim for which a write of the undo failed last: it has to be looked at again."""
        self._sent = ""
        """The version for which a write of the undo was sent whose outcome is unknown."""

    @property
    def state(self) -> tuple[str, int]:
        """What is known of the claim: it makes sense to try again when that has changed."""
        ledger, uid = self._view.ledger, self.write.uid
        known = ledger.by_uid(uid)
        return known.metadata.resource_version if known is not None else "gone", ledger.seen(uid)

    async def run(self, policy: RetryPolicy) -> None:
        """Take back what is or may be stored, and let the devices go. Raises Undecided."""
        if self.write.touched or self._clear:
            result = await self._insisted("a write is not taken back", policy, self._try)
            self._act.observer.count(CLAIM_WRITES_UNDONE, result)
        self.write.let_go()

    async def leave(self, policy: RetryPolicy) -> None:
        """Let everything that is stored stay. The hold ends when it is known what that is. Raises Undecided."""
        self.write.refresh()
        if self.write.doubtful and not self._is_gone():
            await self._insisted("what is stored cannot be told", policy, self._look)
        hold = self.write.hold
        if hold is not None and hold.written_version is None:
            self.write.let_go()

    async def _insisted(self, what: str, policy: RetryPolicy, do: Callable[[], Awaitable[T]]) -> T:
        try:
            return await retried(do, policy, self._view.config, self._view.clock)
        except ApiError as error:
            raise Undecided(f"claim {self.write.claim.metadata.key}: {what}", error) from None

    async def _try(self) -> UndoResult:
        """What was done. Once an undo of unknown outcome may have been carried out, what is stored is nobody's to take
        back: another replica may have made it since. Raises ApiError.
        """
        write = self.write
        write.refresh()
        if self._is_gone():
            return "gone"
        if (write.doubtful or write.claim.metadata.resource_version == self._failed_at) and not await self._look():
            return "gone"
        version = write.claim.metadata.resource_version
        if self._sent and self._sent != version:
            return "left"
        try:
            return await self._write()
        except NotFoundError:
            return "gone"
        except ApiError as error:
            self._failed_at = version
            if isinstance(error, OutcomeUnknownError):
                self._sent = version
            raise

    def _is_gone(self) -> bool:
        """True when the claim was known once, and its end has been seen."""
        return self._view.ledger.by_uid(self.write.uid) is None

    async def _look(self) -> bool:
        """Read the claim as stored now. False when it is gone. Raises ApiError."""
        meta = self.write.claim.metadata
        read = partial(self._act.ports.read_claim, meta.namespace, meta.name)
        found = await read()
        if found is None or found.metadata.uid != meta.uid:
            self._act.intake.gone(self.write.claim)
            return False
        self.write.learned(found)
        return True

    async def _write(self) -> UndoResult:
        """One write, or none. Raises ApiError."""
        ports, write = self._act.ports, self.write
        claim = write.claim
        if claim.allocation is None:
            if not write.doubtful:
                return "gone"
            # The status write may still arrive; moving the claim to another version makes it fail.
            write.learned(await ports.remove_finalizer(claim))
            return "fenced"
        abandoned = self._clear and self._view.settled(claim)
        taken_over = claim.metadata.annotations.get(ADOPTED) != write.mark
        if write.consumer.resource != "pods" or taken_over or not (self._may_be_ours() or abandoned):
            return "left"
        rest = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != write.consumer.uid)
        ours = write.allocation is not None and same_devices(claim.allocation, write.allocation)
        if not rest and (ours or abandoned):
            write.learned(await ports.deallocate(claim))
            return "deallocated"
        if rest != claim.status.reserved_for:
            write.learned(await ports.write_status(claim, reserved_for=rest))
            return "unreserved"
        return "gone"

    def _may_be_ours(self) -> bool:
        """Whether what is stored can be what we wrote. After a long outage it may be what somebody else wrote, who has
        cleared ours meanwhile: nobody does so sooner.
        """
        write = self.write
        if write.sent is None or not write.touched:
            return False
        return self._view.clock.monotonic() < write.sent + self._view.config.settled_seconds
