"""One attempt to bind one pod to one node, from the decision to the binding, or back to where it began.

Promises
- NodeAllocation and holds happen in one step of the event loop.
- Order of writes: finalizer, status of each claim, binding. Before the binding our own writes have come back on the
  watch and no rival was there before us, all claims are allocated and reserved for the pod, all devices are ready.
- "Bound" is said only when the API server has the binding. As long as it may have it, nothing is taken back.
- It ends, whatever the API server does: what cannot be told or taken back goes to `Unfinished`, with the devices held.
- Nothing new is started for a pod that is being deleted, by a replica that does not lead, or after the deadline: others
  count on that when they judge what is left behind.

Rules: Kubernetes 1.36, Reserve, PreBind and Unreserve of
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

from functools import partial

import msgspec
import structlog

from dra_extender.allocation.plan import Unfit
from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from dra_extender.api.extender import ExtenderBindingArgs
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.api.times import format_time
from dra_extender.devices.ledger import HeldError
from dra_extender.scheduling import extended, readiness
from dra_extender.scheduling.bind import failure, reports
from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.claimwrite import ClaimWrite, same_devices
from dra_extender.scheduling.bind.extendedclaim import create
from dra_extender.scheduling.bind.failure import BindFailure, Undecided
from dra_extender.scheduling.bind.livepod import LivePod
from dra_extender.scheduling.bind.retry import RetryPolicy, Unanswered, answered, attempts
from dra_extender.scheduling.bind.rollback import Rollback
from dra_extender.scheduling.bind.unfinished import Unfinished
from dra_extender.scheduling.claims import Unschedulable, claim_names, unreadable_reason
from dra_extender.scheduling.feasibility import NodeAllocation, allocate_pod
from dra_extender.scheduling.outcomes import CONFLICTS, UNANSWERED_WRITES, BindResult
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)


class Attempt:
    """`run` it once. No write is started after `deadline` (monotonic seconds) but those that take something back."""

    def __init__(self, actions: Actions, unfinished: Unfinished, args: ExtenderBindingArgs, deadline: float) -> None:
        self.node = args.Node
        self.deadline = deadline
        self.result: BindResult = "failed"
        """How the attempt is counted, once it has ended."""
        self._act = actions
        self._view = actions.view
        self._unfinished = unfinished
        self._args = args
        self._uid = args.PodUID
        self._live = LivePod(actions, args)
        self._in_doubt_until = 0.0
        """Until then (monotonic seconds) a binding that was sent may arrive."""
        self._writes: list[ClaimWrite] = []
        self._extended: ClaimWrite | None = None

    async def run(self) -> str:
        """The error text for the scheduler; empty = the API server has the binding."""
        try:
            await self._forward()
        except BindFailure as problem:
            return await self._back(problem)
        except Undecided as why:
            return self._put_off(self._rollback(BindFailure(failure.UNTOLD)), why)
        except Exception as problem:
            unexpected("bind", problem, pod=self._uid, node=self.node)
            return await self._back(BindFailure(failure.BROKEN, "broken"))
        self.result = "bound"
        return ""

    async def _forward(self) -> None:
        pod = await self._find_pod()
        if pod.spec.node_name == self.node:
            return
        if pod.spec.node_name:
            raise BindFailure(failure.BOUND_ELSEWHERE, "refused")
        self._require_classes(pod)
        choice = ""
        if self._view.uses_devices(pod):
            decision = await self._decide(pod)
            pod, choice = decision.prefiltered.pod, decision.choice
            await self._write(decision)
            await self._verify()
            await self._wait_for_devices(pod)
            self._check_claims()
        await self._bind()
        reports.allocated(self._act, pod, self._writes, self.node, choice)

    def let_go(self) -> None:
        """Release what is held, when `run` has ended in a way nobody foresaw. What is stored stays accounted for."""
        for write in self._writes:
            write.let_go()

    def _go_on(self) -> None:
        """Raises BindFailure when nothing new must be started."""
        if not self._act.leading():
            raise BindFailure(failure.DEPOSED, "cancelled")
        if self._view.pods.leaving(self._uid):
            raise BindFailure(failure.DELETED, "cancelled")
        if self._remaining() <= 0:
            raise BindFailure(failure.LATE, "late")

    def _remaining(self) -> float:
        return self.deadline - self._view.clock.monotonic()

    # --- the pod ----------------------------------------------------------------------------------------------------

    async def _find_pod(self) -> Pod:
        """The pod from the watch, or read live when the watch is behind. Raises BindFailure."""
        pod = self._view.pods.get(self._uid)
        if pod is None and not self._view.pods.leaving(self._uid):
            pod = await self._live.read(self._go_on)
            if pod is None:
                raise BindFailure(failure.REPLACED, "cancelled")
        self._go_on()
        if pod is None or pod.metadata.key != f"{self._args.PodNamespace}/{self._args.PodName}":
            raise BindFailure(failure.REPLACED, "refused")
        served = self._view.config.scheduler_names
        if served and pod.spec.scheduler_name not in served:
            raise BindFailure(failure.FOREIGN, "refused")
        return pod

    def _require_classes(self, pod: Pod) -> None:
        """The pod must not be bound without the devices it asks for by the name of a resource: the class behind the
        name has gone, has not come yet, or cannot be read. Raises BindFailure.
        """
        missing = self._view.unprovided(pod, self.node)
        if missing:
            self._act.resources.asked_for(missing)
        if missing and (self._view.classes_unreadable or self._view.resources.is_orphaned(missing)):
            raise BindFailure(failure.CLASS_UNKNOWN, "refused")

    # --- the decision -----------------------------------------------------------------------------------------------

    async def _decide(self, pod: Pod) -> NodeAllocation:
        """Decide on the present state and hold the devices. Raises BindFailure."""
        here = partial(allocate_pod, name=self.node)
        decision = await self._act.deferred.decide_within(self._remaining(), pod, here)
        if isinstance(decision, Unschedulable) and decision.behind:
            pod = await self._catch_up(pod)
            decision = await self._act.deferred.decide_within(self._remaining(), pod, here)
        self._go_on()
        self._require_classes(pod)  # anew: the decision is on the present state
        if isinstance(decision, Unschedulable | Unfit):
            raise BindFailure(decision.reason, "refused")
        if not isinstance(decision, NodeAllocation):
            raise BindFailure(decision.error, "refused")
        allocations = [self._stamped(allocation) for allocation in decision.allocations]
        try:
            holds = self._act.holds.hold_all(decision.pending, allocations, self._uid)
        except HeldError:
            raise BindFailure(failure.TAKEN, "conflict") from None
        pending = {
            claim.metadata.uid: (allocation, hold)
            for claim, allocation, hold in zip(decision.pending, allocations, holds, strict=True)
        }
        self._act.reservations.drop(self._uid)
        for claim in decision.claims:
            allocation, hold = pending.get(claim.metadata.uid, (None, None))
            self._writes.append(ClaimWrite(self._act, pod, claim, allocation, hold))
        if decision.requests is not None:
            self._extended = self._writes[-1]
        return decision

    async def _catch_up(self, pod: Pod) -> Pod:
        """Read what the scheduler knows and we do not: the pod's list of claims, or the claims."""
        pod = await self._live.read(self._go_on) or pod
        namespace = pod.metadata.namespace
        for name in claim_names(pod):
            if self._view.ledger.get(namespace, name) is None:
                read = partial(self._act.ports.read_claim, namespace, name)
                claim = await answered(read, self._view.config, self._go_on, insist=True)
                if claim is not None:
                    self._act.intake.learn(claim)
        return pod

    def _stamped(self, allocation: AllocationResult) -> AllocationResult:
        """With the time from which devices have to become ready."""
        if not self._view.features.binding_conditions:
            return allocation
        now = format_time(self._view.clock.wall())
        return msgspec.structs.replace(allocation, allocation_timestamp=now)

    # --- the claims -------------------------------------------------------------------------------------------------

    async def _write(self, decision: NodeAllocation) -> None:
        for write in self._writes:
            if write is self._extended and write.allocation is not None:
                await create(self._act, decision.prefiltered.pod, write, self._go_on)
            await write.write(self._go_on)
        if self._extended is not None and decision.requests is not None:
            await self._write_mappings(decision.prefiltered.pod, decision.requests)

    async def _write_mappings(self, pod: Pod, requests: extended.Requests) -> None:
        """Say to kubelet which container uses which request. Writing it twice does no harm."""
        if self._extended is None:
            return
        name = self._extended.claim.metadata.name
        status = {
            "extendedResourceClaimStatus": {"requestMappings": requests.mappings, "resourceClaimName": name},
        }
        try:
            await answered(lambda: self._act.ports.patch_pod_status(pod, status), self._view.config, self._go_on)
        except (NotFoundError, ConflictError):
            raise BindFailure(failure.REPLACED, "cancelled") from None
        except ApiError as error:
            log.warning("the mappings of extended resources were refused", pod=pod.metadata.key, error=repr(error))
            raise BindFailure("the API server refused the mappings of extended resources") from None

    async def _verify(self) -> None:
        """Of two writers who take one device the later one sees the earlier one here, and yields."""
        act, view, ledger = self._act, self._view, self._view.ledger
        started = view.clock.monotonic()

        def seen() -> bool:
            self._go_on()
            return all(
                ledger.by_uid(write.uid) is None or ledger.seen(write.uid) >= write.claim.metadata.version
                for write in self._writes
            )

        limit = min(view.config.watch_seconds, self._remaining())
        if not await act.signals.until(seen, self._keys(), limit):
            raise BindFailure(failure.OWN_WRITE_UNSEEN, "late")
        act.observer.took("own_write_on_watch", view.clock.monotonic() - started)
        for claim in self._check_claims():
            rivals = ledger.rivals(claim)
            if rivals:
                reports.rivals(act, claim, rivals)
                raise BindFailure(failure.RIVAL, "conflict", clear=True)
            if view.is_doubtful(claim):
                raise BindFailure(failure.VANISHED, "conflict")

    def _check_claims(self) -> list[ResourceClaim]:
        """The claims as known now: all must be allocated as decided and reserved for the pod. Raises BindFailure."""
        claims: list[ResourceClaim] = []
        for write in self._writes:
            claim = self._view.ledger.by_uid(write.uid)
            if claim is None:
                raise BindFailure(f"claim {write.claim.metadata.key} got deleted in the meantime", "conflict")
            if self._view.is_unreadable(claim):
                raise BindFailure(unreadable_reason(claim), "conflict")
            usable = same_devices(claim.allocation, write.claim.allocation) and claim.reserved_for(write.consumer.uid)
            if not usable or claim.metadata.uid in self._view.clearing:
                raise BindFailure(f"claim {claim.metadata.key} got deallocated elsewhere in the meantime", "conflict")
            claims.append(claim)
        return claims

    def _keys(self) -> list[str]:
        return [self._uid, *(write.uid for write in self._writes)]

    # --- binding conditions -----------------------------------------------------------------------------------------

    async def _wait_for_devices(self, pod: Pod) -> None:
        act, view = self._act, self._view
        if not view.features.binding_conditions or self._are_ready():
            return
        note = f"waiting for binding conditions for device on node {self.node}"
        act.ports.record_event(pod, "Normal", "BindingConditionsPending", note)
        limit = min(self._remaining(), self._seconds_to_timeout())
        if await act.signals.until(self._are_ready, self._keys(), limit):
            return
        self._are_ready()
        raise BindFailure(failure.WAITING, "waiting", keep=True)

    def _are_ready(self) -> bool:
        """Whether all devices are. Raises BindFailure when waiting is useless."""
        now, config = self._view.clock.wall(), self._view.config
        if self._view.pods.leaving(self._uid):
            raise BindFailure(failure.DELETED, "cancelled")
        ready = True
        for claim in self._check_claims():
            found = readiness.readiness(claim)
            if found.failed:
                raise BindFailure(found.failed, "failed", clear=True)
            if not found.ready and readiness.timed_out(claim, now, config.binding_seconds):
                raise BindFailure(readiness.timeout_text(claim), "failed", clear=True)
            ready = ready and found.ready
        return ready

    def _seconds_to_timeout(self) -> float:
        """Until the first claim has had its time."""
        seconds = self._view.config.binding_seconds
        ends = [readiness.deadline(write.claim, seconds) for write in self._writes]
        now = self._view.clock.wall().timestamp()
        # A little more, so that the time is over when the wait is.
        return max(0.0, min((end - now + 0.001 for end in ends if end is not None), default=seconds))

    # --- the binding ------------------------------------------------------------------------------------------------

    async def _bind(self) -> None:
        """POST the binding until the server says what became of it. Raises BindFailure or Undecided."""
        args, act, view = self._args, self._act, self._view
        started = view.clock.monotonic()
        async for _ in attempts(view.config):
            try:
                self._go_on()
                self._check_claims()
            except BindFailure:
                if view.clock.monotonic() >= self._in_doubt_until:
                    raise
                if await self._is_bound():
                    break
                continue
            try:
                await act.ports.bind_pod(args.PodNamespace, args.PodName, args.PodUID, args.Node)
                break
            except OutcomeUnknownError:
                self._in_doubt_until = view.clock.monotonic() + view.config.doubt_seconds
                act.observer.count(UNANSWERED_WRITES, "binding")
                if await self._is_bound():
                    break
            except Unanswered:
                continue
            except ApiError as error:
                if await self._is_bound():
                    break
                if view.clock.monotonic() < self._in_doubt_until:
                    continue
                log.warning("a binding was refused", pod=args.PodUID, node=args.Node, error=repr(error))
                raise BindFailure(failure.REFUSED_BINDING, "failed") from None
        act.observer.took("binding", view.clock.monotonic() - started)

    async def _is_bound(self) -> bool:
        """Whether the pod is bound to our node. Raises BindFailure when it never will be, Undecided when that cannot be
        told.
        """
        pod = await self._live.insist(self._retry_policy)
        if pod is None:
            raise BindFailure(failure.REPLACED, "cancelled")
        if pod.spec.node_name and pod.spec.node_name != self.node:
            self._act.observer.count(CONFLICTS, "pod_bound")
            raise BindFailure(failure.BOUND_ELSEWHERE, "conflict")
        return pod.spec.node_name == self.node

    # --- back -------------------------------------------------------------------------------------------------------

    async def _back(self, problem: BindFailure) -> str:
        """Take back what has to be, and say what the scheduler gets for an answer."""
        self.result = problem.result
        way = self._rollback(problem)
        if problem.keep:
            return problem.text
        try:
            if await way.go(self._retry_policy):
                self.result = "bound"
                return ""
        except Undecided as why:
            return self._put_off(way, why)
        return problem.text

    def _put_off(self, way: Rollback, why: Undecided) -> str:
        """The answer, when what was written has to be taken back some other time."""
        self.result = "unfinished"
        self._unfinished.put(way, why)
        return f"{way.problem.text}; {failure.PUT_OFF}"

    def _rollback(self, problem: BindFailure) -> Rollback:
        """For what is or may be stored. The rest is let go."""
        written = [write for write in self._writes if write.touched or (problem.clear and not write.hold)]
        for write in self._writes:
            if write not in written:
                write.let_go()
        doubt, extended = self._in_doubt_until, self._extended
        return Rollback(self._act, self._live, self.node, written, problem, extended=extended, in_doubt_until=doubt)

    @property
    def _retry_policy(self) -> RetryPolicy:
        """How long to try what must not be left undone: as long as a request may be under way."""
        config = self._view.config
        return RetryPolicy(until=self.deadline + config.doubt_seconds, refusals=config.write_attempts)
