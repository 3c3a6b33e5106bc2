"""One attempt to bind one pod to one node, from the decision to the binding, or to the rollback.

Promises
- The decision and the holds happen in one step of the event loop.
- Order of writes: finalizer and status of each claim, then the binding. Before the binding the watch has shown these
  writes and no earlier rival, all claims are allocated and reserved for the pod, and all devices are ready.
- The binding requires a version of the pod whose status names the claims of the decision and has what this bind wrote.
  kube-controller-manager may create a claim twice and name the second one later; another replica may write the status.
- The attempt succeeds only when the API server has the binding. While the API server may have it, nothing is rolled
  back.
- It ends, whatever the API server does: `PendingRollbacks` completes a rollback that fails or has an unknown outcome,
  and the devices stay held until then.
- It starts no write if the pod is being deleted, if this replica does not lead, or after the deadline. The rules for
  unused allocations (`idle.py`) rely on that.

Rules: Kubernetes 1.36, Reserve, PreBind and Unreserve of plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from dra_extender.allocation.plan import Unfit
from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, OutcomeUnknownError
from dra_extender.api.extender import ExtenderBindingArgs
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceClass, ResourceClaim
from dra_extender.devices.ledger import HeldError
from dra_extender.scheduling import readiness
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.bind.claimwrite import ClaimWrite, create
from dra_extender.scheduling.bind.context import BindContext, LivePod, is_allocated_by_member, plan_gang, reported
from dra_extender.scheduling.bind.failure import UNANSWERED, BindFailure, RetryPolicy, Unresolved, answered, attempts
from dra_extender.scheduling.bind.rollback import PendingRollbacks, Rollback
from dra_extender.scheduling.claims import Unschedulable, claim_names, unreadable_reason
from dra_extender.scheduling.feasibility import NodeAllocation, allocate_pod
from dra_extender.scheduling.nodeallocatable import with_statuses
from dra_extender.scheduling.outcomes import CONFLICTS, UNANSWERED_WRITES, BindResult
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Attempt:
    """Call `run` once. After `deadline` (monotonic seconds), the attempt starts only writes that roll back."""

    _context: BindContext
    _pending: PendingRollbacks
    _args: ExtenderBindingArgs
    deadline: float
    result: BindResult = "failed"
    """What metrics count, once the attempt has ended."""
    _version: str = ""
    """The pod's resourceVersion that the binding requires, as it was before the claims were written or marked."""
    _newest: str = ""
    """The pod's resourceVersion as read last."""
    _reported: object = None
    """The parts of the pod's status that describe its devices."""
    _in_doubt_until: float = 0.0
    """Until this time (monotonic seconds), a binding that was sent may arrive."""
    _writes: list[ClaimWrite] = field(default_factory=list)
    _extended: ClaimWrite | None = None

    def __post_init__(self) -> None:
        self.node, self._uid = self._args.Node, self._args.PodUID
        self._view = self._context.view
        self.live = LivePod(self._context, self._args)

    async def run(self) -> str:
        """The error text for the scheduler; empty = the API server has the binding."""
        try:
            await self._commit()
        except BindFailure as problem:
            return await self._unreserve(problem)
        except Unresolved as why:
            return self._postpone(self._rollback(BindFailure(failure.UNKNOWN)), why)
        except Exception as problem:
            unexpected("bind", problem, pod=self._uid, node=self.node)
            return await self._unreserve(BindFailure(failure.BROKEN, "broken"))
        self.result = "bound"
        return ""

    async def _commit(self) -> None:
        pod = await self._find_pod()
        if pod.spec.node_name == self.node:
            return
        if pod.spec.node_name:
            raise BindFailure(failure.BOUND_ELSEWHERE, "refused")
        self._require_classes(pod)
        choice = ""
        if self._view.uses_devices(pod):
            decision = await self._reserve(pod)
            pod, choice = decision.prefiltered.pod, decision.choice
            await self._write_claims(decision)
            await self._verify()
            await self._wait_for_devices(pod)
            self._check_claims()
        await self._bind()
        allocated = [write.allocated_text(self.node) for write in self._writes if write.allocation is not None]
        if allocated:
            note = "; ".join(allocated) + (choice and f", {choice}")
            self._context.ports.record_event(pod, "Normal", "DevicesAllocated", note)

    def release(self) -> None:
        """Release all holds after an unexpected error of `run`. Stored allocations stay in the ledger."""
        for write in self._writes:
            write.release()

    def _check_active(self) -> None:
        """Raises BindFailure when no further write may be started."""
        if not self._context.leading():
            raise BindFailure(failure.NOT_LEADER, "cancelled")
        if self._view.pods.is_terminating(self._uid):
            raise BindFailure(failure.DELETED, "cancelled")
        if self._remaining() <= 0:
            raise BindFailure(failure.LATE, "late")

    def _remaining(self) -> float:
        return self.deadline - self._view.clock.monotonic()

    async def _find_pod(self) -> Pod:
        """The pod from the watch, or read live when the watch is behind. Raises BindFailure."""
        pod = self._view.pods.get(self._uid)
        if pod is None and not self._view.pods.is_terminating(self._uid):
            pod = await self.live.read(self._check_active)
            if pod is None:
                raise BindFailure(failure.REPLACED, "cancelled")
        self._check_active()
        if pod is None or pod.metadata.key != f"{self._args.PodNamespace}/{self._args.PodName}":
            raise BindFailure(failure.REPLACED, "refused")
        served = self._view.config.scheduler_names
        if served and pod.spec.scheduler_name not in served:
            raise BindFailure(failure.OTHER_SCHEDULER, "refused")
        return pod

    def _require_classes(self, pod: Pod) -> None:
        """Raises BindFailure when the pod asks for an extended resource whose device class was deleted, was not created
        yet or cannot be read: the pod would be bound without its devices.
        """
        missing = self._view.unprovided(pod, self.node)
        if missing:
            self._context.event_handler.resources.asked_for(missing)
            unreadable = any(key.kind == DeviceClass.__name__ for key in self._view.cluster.undecodable)
            if unreadable or self._view.resources.is_orphaned(missing):
                raise BindFailure(failure.CLASS_UNKNOWN, "refused")

    async def _reserve(self, pod: Pod) -> NodeAllocation:
        """Decide on the present state and hold the devices. Raises BindFailure."""
        await plan_gang(self._context, pod, self.node, self._remaining())
        here = partial(allocate_pod, name=self.node)
        decision = await self._context.deferred.decide_within(self._remaining(), pod, here)
        if isinstance(decision, Unschedulable) and decision.behind:
            pod = await self._catch_up(pod)
            decision = await self._context.deferred.decide_within(self._remaining(), pod, here)
        while await is_allocated_by_member(self._context, pod, decision, self._check_active, self._remaining()):
            decision = await self._context.deferred.decide_within(self._remaining(), pod, here)
        self._check_active()
        self._require_classes(pod)  # once more: a class may have gone while the decision was made
        if isinstance(decision, Unschedulable | Unfit):
            raise BindFailure(decision.reason, "refused")
        if not isinstance(decision, NodeAllocation):
            raise BindFailure(decision.error, "refused")
        # The binding timeout counts from this time.
        now = format_time(self._view.clock.wall()) if self._view.features.binding_conditions else None
        allocations = [msgspec.structs.replace(each, allocation_timestamp=now) for each in decision.allocations]
        try:
            holds = self._context.hold_all(decision.pending, allocations, self._uid)
        except HeldError:
            raise BindFailure(failure.TAKEN, "conflict") from None
        if self._context.usage is not None:
            self._context.usage.assume(with_statuses(pod, decision.statuses), self.node, self.live)
        self._context.tentative_plans.drop(self._uid)
        for claim in decision.claims:
            self._writes.append(ClaimWrite(self._context, pod, claim, holds.get(claim.metadata.uid)))
        if decision.requests is not None:
            self._extended = self._writes[-1]
        return decision

    async def _catch_up(self, pod: Pod) -> Pod:
        """Read the pod and those of its claims that the watches have not shown: kube-scheduler's may be ahead."""
        pod = await self.live.read(self._check_active) or pod
        namespace = pod.metadata.namespace
        for name in claim_names(pod):
            if self._view.ledger.get(namespace, name) is None:
                read = partial(self._context.ports.read_claim, namespace, name)
                claim = await answered(read, self._view.config, self._check_active, even_refused=True)
                if claim is not None:
                    self._context.event_handler.replied(claim)
        return pod

    async def _write_claims(self, decision: NodeAllocation) -> None:
        created, pod = self._extended, self._view.pods.get(self._uid) or decision.prefiltered.pod
        if created is not None and created.allocation is not None:
            await create(self._context, pod, created, self._check_active)
        names = [write.claim.metadata.name for write in self._writes]
        extended = created.claim.metadata.name if created is not None else ""
        pod = await self.live.write_status(pod, decision, names, extended, self._check_active)
        self._version = self._newest = pod.metadata.resource_version
        self._reported = reported(pod)
        if claim_names(pod) != claim_names(decision.prefiltered.pod):
            raise BindFailure(failure.STATUS_CHANGED, "conflict")
        for write in self._writes:
            await write.write(self._check_active if write is not self._writes[0] else self._require_newest_version)

    def _require_newest_version(self) -> None:
        """Require the newest version of the pod: kube-scheduler changes its status just before it calls bind."""
        self._check_active()
        pod = self._view.pods.get(self._uid)
        if pod is not None and not pod.spec.node_name and reported(pod) == self._reported:
            self._version = self._newest = pod.metadata.resource_version

    async def _verify(self) -> None:
        """Raises BindFailure when an earlier writer has one of the devices: the later of two writers rolls back."""
        context, view, ledger = self._context, self._view, self._view.ledger
        started = view.clock.monotonic()

        def seen() -> bool:
            self._check_active()
            return all(
                ledger.by_uid(write.uid) is None or ledger.watched_version(write.uid) >= write.claim.metadata.version
                for write in self._writes
            )

        limit = min(view.config.watch_seconds, self._remaining())
        if not await context.event_handler.signals.until(seen, self._keys(), limit):
            raise BindFailure(failure.OWN_WRITE_UNSEEN, "late")
        context.observer.took("own_write_on_watch", view.clock.monotonic() - started)
        for write, claim in zip(self._writes, self._check_claims(), strict=True):
            if write is not self._writes[0]:
                await asyncio.sleep(0)  # a pod may have many claims, and each check may be long
            verified = write.allocation is None and view.bound_user(claim) is not None  # by the bind of that pod
            rivals = ledger.rivals(claim, lambda work: False) if verified else ledger.rivals(claim)
            if rivals:
                context.report_rivals(claim, rivals)
                raise BindFailure(failure.RIVAL, "conflict", clear=True)
            if view.is_unverified(claim):
                raise BindFailure(failure.COUNTERS_UNKNOWN, "conflict")

    def _check_claims(self) -> list[ResourceClaim]:
        """The claims as known now: all must be allocated as decided and reserved for the pod. Raises BindFailure."""
        claims: list[ResourceClaim] = []
        for write in self._writes:
            claim = self._view.ledger.by_uid(write.uid)
            if claim is None:
                raise BindFailure(f"claim {write.claim.metadata.key} got deleted in the meantime", "conflict")
            if self._view.is_unreadable(claim):
                raise BindFailure(unreadable_reason(claim), "conflict")
            if not write.is_usable(claim) or claim.metadata.uid in self._view.clearing:
                raise BindFailure(f"claim {claim.metadata.key} got deallocated elsewhere in the meantime", "conflict")
            claims.append(claim)
        return claims

    def _keys(self) -> list[str]:
        return [self._uid, *(write.uid for write in self._writes)]

    async def _wait_for_devices(self, pod: Pod) -> None:
        context, view = self._context, self._view
        if not view.features.binding_conditions or self._are_ready():
            return
        note = f"waiting for binding conditions for device on node {self.node}"
        context.ports.record_event(pod, "Normal", "BindingConditionsPending", note)
        claims, seconds = [write.claim for write in self._writes], view.config.binding_conditions_timeout
        limit = min(self._remaining(), readiness.seconds_to_timeout(claims, view.clock.wall(), seconds))
        if await context.event_handler.signals.until(self._are_ready, self._keys(), limit):
            return
        raise BindFailure(failure.WAITING, "waiting", keep=True)

    def _are_ready(self) -> bool:
        """True when all devices are ready. Raises BindFailure when waiting cannot help."""
        now, config = self._view.clock.wall(), self._view.config
        if self._view.pods.is_terminating(self._uid):
            raise BindFailure(failure.DELETED, "cancelled")
        ready = True
        for claim in filter(readiness.has_conditions, self._check_claims()):
            if problem := readiness.unavailable(claim, now, config.binding_conditions_timeout):
                raise BindFailure(problem, "failed", clear=True)
            ready = ready and readiness.readiness(claim).ready
        return ready

    async def _bind(self) -> None:
        """POST the binding until its outcome is known. Raises BindFailure or Unresolved.

        When the pod has changed, the attempt marks the claims again: another replica may have changed the pod in order
        to release a claim. Then either the mark or the release fails.
        """
        args, context, view = self._args, self._context, self._view
        started = view.clock.monotonic()
        conflicts = 0
        async for _ in attempts(view.config):
            try:
                self._check_active()
                if self._is_outdated:
                    await self._mark_again()
                self._check_claims()
            except BindFailure:
                if view.clock.monotonic() >= self._in_doubt_until:
                    raise
                if await self._is_bound():
                    break
                continue
            try:
                await context.ports.bind_pod(args.PodNamespace, args.PodName, args.PodUID, self._version, args.Node)
                break
            except OutcomeUnknownError:
                self._in_doubt_until = view.clock.monotonic() + view.config.doubt_seconds
                context.observer.count(UNANSWERED_WRITES, "binding")
                if await self._is_bound():
                    break
            except UNANSWERED:
                continue
            except ApiError as error:
                if await self._is_bound():
                    break
                if view.clock.monotonic() < self._in_doubt_until:
                    continue
                conflicts += isinstance(error, ConflictError)
                if self._is_outdated and 0 < conflicts < view.config.write_attempts:
                    continue
                log.warning("a binding was refused", pod=args.PodUID, node=args.Node, error=repr(error))
                raise BindFailure(failure.REFUSED_BINDING, "failed") from None
        context.observer.took("binding", view.clock.monotonic() - started)

    @property
    def _is_outdated(self) -> bool:
        """True when the pod has changed since `_version`, so that the binding would fail."""
        return bool(self._version) and self._newest != self._version

    async def _mark_again(self) -> None:
        """Mark the claims for the newest version of the pod. Raises BindFailure when one is, or will be, released."""
        self._version = self._newest
        for write in self._writes:
            await write.mark_again()
        await self._verify()

    async def _is_bound(self) -> bool:
        """True when the pod is bound to the node. Raises BindFailure when it never will be, Unresolved when its state
        cannot be read.
        """
        pod = await self.live.require(self._retry_policy)
        if pod is None:
            raise BindFailure(failure.REPLACED, "cancelled")
        if pod.spec.node_name and pod.spec.node_name != self.node:
            self._context.observer.count(CONFLICTS, "pod_bound")
            raise BindFailure(failure.BOUND_ELSEWHERE, "conflict")
        self._newest = pod.metadata.resource_version
        if self._is_outdated:
            self._in_doubt_until = 0.0  # what was sent cannot arrive any more
        if pod.spec.node_name == self.node:
            return True
        if self._reported is not None and reported(pod) != self._reported:
            raise BindFailure(failure.STATUS_CHANGED, "conflict")
        return False

    async def _unreserve(self, problem: BindFailure) -> str:
        """Roll back what the attempt wrote, and return the error text for the scheduler."""
        self.result = problem.result
        rollback = self._rollback(problem)
        if problem.keep:
            return problem.text
        try:
            if await rollback.run(self._retry_policy):
                self.result = "bound"
                return ""
        except Unresolved as why:
            return self._postpone(rollback, why)
        return problem.text

    def _postpone(self, rollback: Rollback, why: Unresolved) -> str:
        """Leave the rollback to `PendingRollbacks`, and return the error text for the scheduler."""
        self.result = "unfinished"
        self._pending.put(rollback, why)
        return f"{rollback.problem.text}; {failure.NOT_ROLLED_BACK}"

    def _rollback(self, problem: BindFailure) -> Rollback:
        """The rollback of all writes that are or may be stored. Releases the holds of the other claims."""
        written = [write for write in self._writes if write.may_be_stored or (problem.clear and not write.hold)]
        for write in self._writes:
            if write not in written:
                write.release()
        until, is_reported = self._in_doubt_until, bool(self._version)
        return Rollback(self._context, problem, self.live, self.node, written, self._extended, until, is_reported)

    @property
    def _retry_policy(self) -> RetryPolicy:
        """Rollbacks are retried as long as a request of this bind may still arrive."""
        config = self._view.config
        return RetryPolicy(until=self.deadline + config.doubt_seconds, refusals=config.write_attempts)
