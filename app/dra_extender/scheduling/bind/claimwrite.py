"""Writing one claim of one bind: from the decision to the stored status. `ClaimRollback` undoes it.

Promises
- The finalizer is stored before the status. Allocation and reservation are one write. A bind writes an allocation only
  to a claim that has none at the version that the write requires.
- The bind fails when its write gets a version that is not newer than all versions known before: the API server was set
  back to an older state, and the watches may not show an earlier rival.
- A bind that finds the pod's reservation in place adopts it: it marks the claim, and the replica that made the
  reservation reads the mark before rolling back. So two replicas can bind one pod without undoing each other's writes.
- After a lost reply, the bind first reads the claim, and treats what is stored as another writer's.
- At most one claim for extended resources exists per pod, whatever replies are lost: its name follows from the pod's
  UID.

Rules: Kubernetes 1.36, bindClaim in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from dra_extender.api.resource import FINALIZER, MAX_CONSUMERS, AllocationResult, ResourceClaim
from dra_extender.devices.ledger import HeldError, Hold
from dra_extender.scheduling.bind.context import BindContext
from dra_extender.scheduling.bind.failure import (
    SET_BACK,
    TAKEN,
    UNANSWERED,
    BindFailure,
    CheckActive,
    answered,
    attempts,
    error_text,
)
from dra_extender.scheduling.claims import ADOPTED, consumer, full_reason
from dra_extender.scheduling.extended import claim_body, claim_name
from dra_extender.scheduling.outcomes import CONFLICTS, UNANSWERED_WRITES

log = structlog.get_logger(__name__)


class ClaimWrite:
    """`claim`: the newest known version. With a `hold`, the bind allocates and reserves it, else only reserves it."""

    def __init__(self, context: BindContext, pod: Pod, claim: ResourceClaim, hold: Hold | None) -> None:
        self._context = context
        self._view = context.view
        self.claim = claim
        self.allocation = hold.allocation if hold is not None else None
        self.hold = hold
        self.consumer = consumer(claim, pod, context.view.cluster)
        self._pod = pod
        self._expected = self.allocation or claim.allocation
        self._stored = False
        self._adopted = False
        self.sent: float | None = None
        """When the first status write was sent."""
        self.in_doubt = ""
        """The version that a status write with an unknown outcome requires; empty without one."""
        self.adopted_mark = claim.metadata.annotations.get(ADOPTED)
        """The `ADOPTED` annotation that the claim had before this bind's last write, or that this bind has written."""
        self._own_version = ""
        """The version of the claim after this bind's last status write or mark."""
        self._usable: tuple[ResourceClaim | None, ResourceClaim | None] = None, None
        """The last version that `is_usable` accepted, and `claim` at that time."""

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid

    @property
    def is_unchanged(self) -> bool:
        """True while this bind made the last write to the claim. Another bind that relies on the claim writes to it."""
        return self.claim.metadata.resource_version == self._own_version

    @property
    def may_be_stored(self) -> bool:
        """True when a status write of this bind is or may be stored."""
        return self._stored or bool(self.in_doubt)

    @property
    def may_be_adopted(self) -> bool:
        """True when another bind may rely on what this one wrote. Another bind of the same pod marks the claim. If the
        claim is reserved for a group, any write may be a bind of another of its pods: users can remove that mark.
        """
        if self.consumer.resource != "pods":
            return not self.is_unchanged
        return self.claim.metadata.annotations.get(ADOPTED) != self.adopted_mark

    def is_usable(self, claim: ResourceClaim) -> bool:
        """True when this version is allocated as decided, and reserved for the pod or for its group as known now."""
        user, now = self.consumer, consumer(claim, self._pod, self._view.cluster)
        compared, known = self._usable
        if claim is not compared or self.claim is not known:  # a change of one claim makes the bind check all
            if not same_devices(claim.allocation, self.claim.allocation) or not claim.reserved_for(user.uid):
                return False
            self._usable = claim, self.claim
        return user.uid in (now.uid, self._pod.metadata.uid)

    def use_created(self, created: ResourceClaim) -> None:
        """Move the hold from the placeholder to the created claim; no await, so no other bind takes the devices.

        Raises BindFailure when another writer has allocated one of them.
        """
        if self.hold is None:
            raise ValueError("only a claim to be allocated can be created")
        self._context.event_handler.replied(created)
        self.claim = created
        placeholder, self.hold = self.hold, None
        try:
            self.hold = self._context.exchange(placeholder, created)
        except HeldError:
            raise BindFailure(TAKEN, "conflict") from None

    async def write(self, check_active: CheckActive) -> None:
        """Store finalizer, allocation and reservation as needed. Raises BindFailure.

        Binds that share the claim write one after the other, to avoid conflicts.
        """
        async with self._lock():
            self.refresh()
            await self._write(check_active)

    def _lock(self) -> asyncio.Lock:
        return self._context.locks.setdefault(self.uid, asyncio.Lock())

    async def _write(self, check_active: CheckActive) -> None:
        conflicts = 0
        async for _ in attempts(self._view.config):
            self._check()
            if self._is_complete() and (self._stored or self._adopted):
                return
            check_active()
            try:
                await self._write_once(check_active)
                return
            except ConflictError:
                conflicts += 1
                self._context.observer.count(CONFLICTS, "claim_changed")
                if conflicts >= self._view.config.write_attempts:
                    raise BindFailure(self._text("changes too often"), "conflict") from None
                await self._read(check_active)
            except NotFoundError:
                self._context.event_handler.gone(self.claim)
                raise BindFailure(self._text("got deleted in the meantime"), "conflict") from None
            except OutcomeUnknownError:
                self._context.observer.count(UNANSWERED_WRITES, "claim")
                await self._read(check_active)
            except UNANSWERED:
                continue
            except ApiError as error:
                log.warning("a claim's write was refused", claim=self.claim.metadata.key, error=repr(error))
                raise BindFailure(self._text(f"cannot be allocated or reserved: {error_text(error)}")) from None

    def refresh(self) -> None:
        """Take the newest version that the ledger knows."""
        newest = self._view.ledger.by_uid(self.uid)
        if newest is not None and newest is not self.claim:
            self.learned(newest)

    def _text(self, what: str) -> str:
        return f"claim {self.claim.metadata.key} {what}"

    def _check(self) -> None:
        """Raises BindFailure when the claim differs from what the decision was made on, or its devices are taken."""
        claim, expected = self.claim, self._expected
        if claim.metadata.deletion_timestamp:
            raise BindFailure(self._text("got deleted in the meantime"), "conflict")
        if self.allocation is None:
            if claim.allocation is None:
                raise BindFailure(self._text("got deallocated elsewhere in the meantime"), "conflict")
            if not same_devices(claim.allocation, expected):
                raise BindFailure(self._text("got allocated elsewhere in the meantime"), "conflict")
        elif claim.allocation is not None and not self._is_ours(claim):
            raise BindFailure(self._text("got allocated elsewhere in the meantime"), "conflict")
        if len(claim.status.reserved_for) >= MAX_CONSUMERS and not claim.reserved_for(self.consumer.uid):
            raise BindFailure(full_reason(claim), "refused")
        # Do not write and roll back: kube-scheduler's plugin frees a device as soon as one of its claims releases it.
        if self.hold is not None and not self.may_be_stored and self._view.ledger.contested(self.hold):
            self._context.observer.count(CONFLICTS, "device_taken")
            raise BindFailure(TAKEN, "conflict")

    def _is_ours(self, claim: ResourceClaim) -> bool:
        """True when the claim has the status that this bind writes, also if another writer stored it."""
        return same_devices(claim.allocation, self._expected) and claim.reserved_for(self.consumer.uid)

    def _is_complete(self) -> bool:
        return self.claim.allocation is not None and self.claim.reserved_for(self.consumer.uid)

    async def _write_once(self, check_active: CheckActive) -> None:
        if self._is_complete():
            await self._mark()
            self._adopted = True
            return
        newest = self._view.ledger.newest
        if self.allocation is not None and FINALIZER not in self.claim.metadata.finalizers:
            started = self._view.clock.monotonic()
            self.learned(await self._context.ports.add_finalizer(self.claim))
            self._context.observer.took("finalizer", self._view.clock.monotonic() - started)
            self._check_newer(newest)
            self._check()
            check_active()
        started, newest = self._view.clock.monotonic(), self._view.ledger.newest
        written = await self._write_status()
        self._context.observer.took("status", self._view.clock.monotonic() - started)
        self._stored = True
        self._own_version = written.metadata.resource_version
        self.learned(written)
        self._check_newer(newest)

    def _check_newer(self, newest: int) -> None:
        """Raises BindFailure unless the written claim is newer than `newest`, the newest version known before."""
        if 0 < self.claim.metadata.version <= newest:
            raise BindFailure(SET_BACK)

    async def _mark(self) -> None:
        mark, newest = uuid.uuid4().hex, self._view.ledger.newest
        marked = await self._context.ports.annotate(self.claim, {ADOPTED: mark})
        self.adopted_mark, self._own_version = mark, marked.metadata.resource_version
        self.learned(marked)
        self._context.event_handler.idle.renew(self.claim.metadata.uid)
        self._check_newer(newest)

    async def mark_again(self) -> None:
        """Change the claim, so that a release at its present version fails. Raises BindFailure when it is released."""
        async with self._lock():
            self.refresh()
            if not self._is_complete():
                raise BindFailure(self._text("got deallocated elsewhere in the meantime"), "conflict")
            if self.may_be_adopted:
                self._stored = False
            try:
                await self._mark()
            except ApiError as error:
                raise BindFailure(self._text(f"cannot be marked: {error_text(error)}"), "conflict") from None

    async def _write_status(self) -> ResourceClaim:
        """Write the status. From the moment it is sent until its outcome is known, `in_doubt` is set."""
        ports, claim = self._context.ports, self.claim
        consumers = claim.status.reserved_for
        if not claim.reserved_for(self.consumer.uid):
            consumers = (*consumers, self.consumer)
        earlier, self.in_doubt = self.in_doubt, claim.metadata.resource_version
        if self.sent is None:
            self.sent = self._view.clock.monotonic()
        self.adopted_mark = claim.metadata.annotations.get(ADOPTED)
        try:
            if self.allocation is None:
                return await ports.write_status(claim, reserved_for=consumers)
            return await ports.write_status(claim, allocation=self.allocation, reserved_for=consumers)
        except OutcomeUnknownError:
            raise
        except ApiError:
            self.in_doubt = earlier
            raise

    async def _read(self, check_active: CheckActive) -> None:
        """Read the claim as stored now. Raises BindFailure when it is gone or cannot be read."""
        try:
            found = await answered(partial(self._context.stored, self.claim), self._view.config, check_active)
        except ApiError as error:
            raise BindFailure(self._text(f"cannot be read: {error_text(error)}")) from None
        if found is None:
            raise BindFailure(self._text("got deleted in the meantime"), "conflict")
        self.learned(found)

    def learned(self, claim: ResourceClaim) -> None:
        """Use a newer version of the claim. A write in doubt cannot arrive once the claim has another version than the
        write requires. Whether it was stored stays unknown: another replica that binds the pod writes the same.
        """
        if 0 < claim.metadata.version < self.claim.metadata.version:
            return
        if claim.metadata.resource_version != self.in_doubt:
            self.in_doubt = ""
        self.claim = claim
        if self.hold is not None and self._is_ours(claim):
            self._context.confirm(self.hold, claim)
        else:
            self._context.event_handler.replied(claim)

    def allocated_text(self, node: str) -> str:
        """What the bind allocated, for an event on the pod."""
        results = self.allocation.devices.results if self.allocation is not None else ()
        devices = ", ".join("/".join(result.id) for result in results) or "no devices"
        return f"claim {self.claim.metadata.name}: allocated {devices} on node {node}"

    def release(self) -> None:
        """Release the hold. A stored allocation stays in the ledger."""
        if self.hold is not None:
            self._context.release(self.hold)
            self.hold = None


def same_devices(one: AllocationResult | None, other: AllocationResult | None) -> bool:
    """True when both name the same devices and shares for the same requests. Amounts and parameters are not compared:
    a server may normalise them.
    """
    if one is None or other is None:
        return False
    return _names(one) == _names(other)


def _names(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    return [
        (result.request, result.driver, result.pool, result.device, result.share_id)
        for result in allocation.devices.results
    ]


async def create(context: BindContext, pod: Pod, write: ClaimWrite, check_active: CheckActive) -> None:
    """Create the claim for extended resources that `write` then allocates. Raises BindFailure."""
    body = claim_body(pod, write.claim)
    async for _ in attempts(context.view.config):
        check_active()
        try:
            write.use_created(await context.ports.create_claim(pod.metadata.namespace, body))
            return
        except ConflictError:
            pass
        except OutcomeUnknownError:
            context.observer.count(UNANSWERED_WRITES, "claim_creation")
        except UNANSWERED:
            continue
        except ApiError as error:
            raise _refused(pod, error) from None
        try:
            existing = await answered(
                lambda: context.ports.read_claim(pod.metadata.namespace, claim_name(pod)),
                context.view.config,
                check_active,
            )
        except ApiError as error:
            raise _refused(pod, error) from None
        if existing is not None:
            # Use it only if an earlier request has created it and the reply was lost.
            owner = existing.metadata.controller
            fresh = existing.allocation is None and not existing.metadata.deletion_timestamp
            same = existing.spec.devices.requests == write.claim.spec.devices.requests
            if owner is None or owner.uid != pod.metadata.uid or not fresh or not same:
                raise BindFailure("another claim has the name of the pod's claim for extended resources", "conflict")
            write.use_created(existing)
            return


def _refused(pod: Pod, error: ApiError) -> BindFailure:
    log.warning("a claim for extended resources was refused", pod=pod.metadata.key, error=repr(error))
    return BindFailure("the API server refused the claim for extended resources")
