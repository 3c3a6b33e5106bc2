"""Rolling back what a failed bind wrote, and the rollbacks that could not be completed at once.

Promises
- A rollback never removes a reservation of another pod. It removes an allocation only while no other pod relies on it,
  and only if the bind wrote it; with `clear` also if an attempt that ended long ago has left it.
- Only the bind that wrote a reservation for a PodGroup removes it, and only if it made the last write to the claim.
- Each write requires the version that it was decided on; after a conflict, the rollback reads again. If another writer
  has written the claim since the bind did, the rollback first changes the pod, so that a binding under way fails. To
  look for the mark of another replica is not enough: users can remove it.
- If a write of the bind may still arrive, the rollback writes to the claim so that it fails. The devices stay held
  until this is stored.
- Every call ends. When the API server refuses a request, does not answer it or sends an undecodable reply, the call
  raises Unresolved with the devices held, and may be repeated at any later time.
- `PendingRollbacks` reports each such bind once (log, event, metric) and lists it as a problem until it is rolled back.
  It retries when the watch shows a change of the pod or its claims, and after pauses that double up to a limit. After a
  restart, the sweep releases these claims like all leftovers.

Rules: Kubernetes 1.36, Unreserve in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from dra_extender.api.errors import ApiError, NotFoundError, OutcomeUnknownError
from dra_extender.api.meta import ObjectKey
from dra_extender.devices.validity import ObjectProblem
from dra_extender.scheduling.bind.claimwrite import ClaimWrite, same_devices
from dra_extender.scheduling.bind.context import BindContext, LivePod
from dra_extender.scheduling.bind.failure import NOT_ROLLED_BACK, BindFailure, RetryPolicy, Unresolved, retried
from dra_extender.scheduling.claims import claim_names
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nodeallocatable import patch_of
from dra_extender.scheduling.outcomes import UNDOS_PUT_OFF
from dra_extender.scheduling.waiting import Backoffs

log = structlog.get_logger(__name__)

FENCED: Final = "dra-extender.dev/fenced"
"""Annotation that a rollback writes so that a late reservation fails: the claim's version that it requires."""


class ClaimRollback:
    """The rollback of one bind's writes to one claim. Repeat `run` or `keep` until it does not raise Unresolved."""

    def __init__(self, context: BindContext, write: ClaimWrite, *, clear: bool) -> None:
        self.write = write
        self._context = context
        self._view = context.view
        self._clear = clear
        self._failed_at = ""
        """The claim's version when a write of the rollback failed last: the next try reads the claim first."""
        self._sent = ""
        """The claim's version when the rollback sent a write with an unknown outcome."""

    @property
    def state(self) -> tuple[str, int]:
        """What the watch shows of the claim: a change is a reason to retry."""
        ledger, uid = self._view.ledger, self.write.uid
        known = ledger.by_uid(uid)
        return known.metadata.resource_version if known is not None else "gone", ledger.watched_version(uid)

    async def run(self, policy: RetryPolicy) -> None:
        """Roll back what is or may be stored, and release the devices. Raises Unresolved."""
        if self.write.may_be_stored or self._clear:
            await self._retried("cannot be rolled back", policy, self._try)
        self.write.release()

    async def keep(self, policy: RetryPolicy) -> None:
        """Keep what is stored, and release the hold once that is known. Raises Unresolved."""
        self.write.refresh()
        if self.write.in_doubt and not self._is_gone():
            await self._retried("cannot be read", policy, self._read)
        hold = self.write.hold
        if hold is not None and hold.written_version is None:
            self.write.release()

    async def _retried(self, what: str, policy: RetryPolicy, do: Callable[[], Awaitable[object]]) -> None:
        try:
            await retried(do, policy, self._view.config, self._view.clock)
        except ApiError as error:
            raise Unresolved(f"claim {self.write.claim.metadata.key} {what}", error) from None

    async def _try(self) -> None:
        """Roll back. Leave the claim unchanged if an earlier write of the rollback may be stored: another replica may
        have written the claim since. Raises ApiError.
        """
        write = self.write
        write.refresh()
        if self._is_gone():
            return
        if (write.in_doubt or write.claim.metadata.resource_version == self._failed_at) and not await self._read():
            return
        version = write.claim.metadata.resource_version
        if self._sent and self._sent != version:
            return
        try:
            await self._write()
        except NotFoundError:
            return
        except ApiError as error:
            self._failed_at = version
            if isinstance(error, OutcomeUnknownError):
                self._sent = version
            raise

    def _is_gone(self) -> bool:
        """True when the watch or a reply has shown that the claim is gone."""
        return self._view.ledger.by_uid(self.write.uid) is None

    async def _read(self) -> bool:
        """Read the claim as stored now. False when it is gone. Raises ApiError."""
        found = await self._context.stored(self.write.claim)
        if found is not None:
            self.write.learned(found)
        return found is not None

    async def _write(self) -> None:
        """Make one write, or none if nothing is stored or another bind relies on it. Raises ApiError."""
        ports, fence, write = self._context.ports, self._context.clearer.fence, self.write
        claim = write.claim
        if claim.allocation is None:
            if write.in_doubt:  # the status write may still arrive; a new version of the claim makes it fail
                write.learned(await ports.remove_finalizer(claim))
            return
        abandoned = self._clear and write.consumer.resource == "pods" and self._view.is_abandoned(claim)
        if write.in_doubt and not abandoned:  # the same for a reservation
            write.learned(await ports.annotate(claim, {FENCED: claim.metadata.resource_version}))
            return
        if write.may_be_adopted or not (self._may_be_ours() or abandoned):
            return
        rest = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != write.consumer.uid)
        ours = write.allocation is not None and same_devices(claim.allocation, write.allocation)
        if not rest and (ours or abandoned):
            if (ours and write.is_unchanged) or not await fence(claim):
                write.learned(await ports.deallocate(claim))
        elif rest != claim.status.reserved_for and (write.is_unchanged or not await fence(claim, write.consumer.uid)):
            write.learned(await ports.write_status(claim, reserved_for=rest))

    def _may_be_ours(self) -> bool:
        """True when the stored status may be what this bind wrote. Other writers clear it after `abandoned_seconds` at
        the earliest, so later the stored status may be another writer's.
        """
        write = self.write
        if write.sent is None or not write.may_be_stored:
            return False
        return self._view.clock.monotonic() < write.sent + self._view.config.abandoned_seconds


class Rollback(msgspec.Struct, eq=False):
    """Rolls back one failed bind, unless its pod is bound after all. Repeat `run` until it does not raise Unresolved: a
    claim that is done is not written again.
    """

    context: BindContext
    problem: BindFailure
    pod: LivePod
    node: str
    writes: Sequence[ClaimWrite]
    """In order."""
    extended: ClaimWrite | None
    """The write of the pod's claim for extended resources."""
    in_doubt_until: float
    """After this time (monotonic seconds) a binding that was sent can no longer arrive."""
    reported: bool
    """True once the attempt has written the pod's status, if it had to."""
    open: list[ClaimRollback] = []
    """The claims that are not rolled back yet, the last written first."""

    def __post_init__(self) -> None:
        self.open = [ClaimRollback(self.context, each, clear=self.problem.clear) for each in reversed(self.writes)]

    @property
    def claims(self) -> tuple[str, ...]:
        """namespace/name of the claims not rolled back yet, in the order in which they were written."""
        return tuple(each.write.claim.metadata.key for each in reversed(self.open))

    @property
    def state(self) -> object:
        """What the watches show of the pod and its claims: a change is a reason to retry."""
        uid, pods = self.pod.uid, self.context.view.pods
        known = pods.get(uid)
        return known is not None and known.spec.node_name, pods.is_terminating(uid), [each.state for each in self.open]

    @property
    def may_run(self) -> bool:
        """True when no other bind of the pod is in progress and no binding can arrive any more."""
        known = self.context.view.pods.get(self.pod.uid)
        if known is not None and known.spec.node_name:
            return True
        return (
            self.pod.uid not in self.context.view.binding and self.context.view.clock.monotonic() >= self.in_doubt_until
        )

    async def run(self, policy: RetryPolicy) -> bool:
        """True when the pod is bound after all and what is stored stays. Raises Unresolved, with the devices held."""
        if self.writes and await self.pod.is_bound_to(self.node, policy):
            await self._each(lambda each: each.keep(policy) if self._may_be_in_use(each.write) else each.run(policy))
            return True
        await self._each(lambda each: each.run(policy))
        extended = self.extended
        if extended is not None and extended.allocation is not None:
            claim = self.context.view.ledger.by_uid(extended.uid)
            if claim is not None:  # the pod's next attempt cannot use it
                await self.context.clearer.discard(claim)
        usage, pod = self.context.usage, self.context.view.pods.get(self.pod.uid)
        own = (usage is None or usage.forget(self.pod.uid, self.pod)) and self.reported
        if own and pod is not None and not pod.spec.node_name and (cleared := patch_of(pod, ())):
            try:
                await self.context.ports.patch_pod_status(pod, cleared, version=pod.metadata.resource_version)
            except ApiError as error:  # the next bind replaces them
                log.info("amounts in a pod's status were not cleared", pod=self.pod.key, error=repr(error))
        if self.writes and pod is not None:
            self.context.ports.record_event(pod, "Warning", "DevicesReleased", f"not bound: {self.problem.text}")
        return False

    def _may_be_in_use(self, write: ClaimWrite) -> bool:
        """False when a later bind has bound the pod with another claim. If this bind may have bound the pod, its claim
        stays: kubelet may have started the pod with it.
        """
        pod = self.context.view.pods.get(self.pod.uid)
        if pod is None or self.in_doubt_until:
            return True
        extended, names = pod.status.extended_resource_claim_status, claim_names(pod)
        if extended is not None:
            names.append(extended.resource_claim_name)
        return write.claim.metadata.name in names or (bool(pod.spec.resource_claims) and not names)

    async def _each(self, do: Callable[[ClaimRollback], Awaitable[None]]) -> None:
        """Go on with the next claim when one cannot be rolled back. Raises the first Unresolved."""
        left: list[ClaimRollback] = []
        problems: list[Unresolved] = []
        for each in self.open:
            try:
                await do(each)
            except Unresolved as problem:
                left.append(each)
                problems.append(problem)
        self.open = left
        if problems:
            raise problems[0]


class PendingRollbacks:
    """Call `put` once per bind, and `work` about once a second."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self._view = handle, handle.view
        self._entries: dict[Rollback, tuple[Unresolved, object]] = {}
        """Why each is not complete, and what the watches showed when it was tried last."""
        self._backoffs: Backoffs[Rollback] = Backoffs(handle.view.clock, handle.view.config)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def problems(self) -> Sequence[ObjectProblem]:
        """One per bind: why it is not rolled back, and what to do."""
        return [_problem(rollback, why) for rollback, (why, _) in self._entries.items()]

    def put(self, rollback: Rollback, why: Unresolved) -> None:
        """Remember the rollback of a bind that could not be completed."""
        self._entries[rollback] = why, rollback.state
        self._backoffs.failed(rollback)
        self._handle.observer.count(UNDOS_PUT_OFF, why.reason)
        log.warning("a failed bind is not rolled back yet", pod=rollback.pod.key, claims=rollback.claims, why=why.text)
        pod = self._view.pods.get(rollback.pod.uid)
        if pod is not None:
            note = f"not bound, and {NOT_ROLLED_BACK}: {why.text}"
            self._handle.ports.record_event(pod, "Warning", "DevicesHeld", note)

    async def work(self) -> None:
        """Retry the rollbacks that are due. When the API server does not answer, the others wait too."""
        for rollback, (_, before) in list(self._entries.items()):
            state = rollback.state
            if not rollback.may_run or (state == before and not self._backoffs.over(rollback)):
                continue
            try:
                bound = await rollback.run(RetryPolicy(until=self._view.clock.monotonic(), refusals=1))
            except Unresolved as why:
                self._entries[rollback] = why, state
                self._backoffs.failed(rollback)
                if why.is_outage:
                    return
                continue
            del self._entries[rollback]
            self._backoffs.forget(rollback)
            how = "its pod is bound" if bound else "rolled back, or another writer's by now"
            log.info("a failed bind is settled", pod=rollback.pod.key, how=how)


def _problem(rollback: Rollback, why: Unresolved) -> ObjectProblem:
    claims = ", ".join(rollback.claims)
    what = f"a bind failed ({rollback.problem.text}) and its writes to {claims} are not rolled back: {why.text}"
    return ObjectProblem(ObjectKey("Pod", rollback.pod.key), what, _ADVICE[why.reason])


_ADVICE = {
    "refused": "grant the permission again, as manifests/rbac does; the devices stay held until then",
    "undecodable": "correct or delete the claim or pod; the devices stay held until then",
    "unanswered": "restore the connection to the API server; the devices stay held until then",
}
