"""The controller that nominates pods ahead of kube-scheduler's queue.

Promises
- Pods are nominated in kube-scheduler's order, as many as are bound within the next seconds. The plans of the pods
  before a pod count as taken for it.
- A pod is nominated only for a node where it fits now, by its devices and by the resources, taints and labels of the
  node. The nomination is removed within seconds when the pod no longer fits there or is not bound in time.
- Nominations of other components and of preemption are not touched.
- The members of a gang are nominated for the nodes of its plan when kube-scheduler asks about a part of the nodes only.
  These nominations end with the plan. Until a scheduler has asked about the nodes, the gang is requeued.
- Correctness does not depend on early nominations: a wrong, late or missing one costs kube-scheduler one ordinary
  cycle.
- Only the leader nominates. A new leader removes the nominations that the old one left on pods.

Rules: Kubernetes 1.36, evaluateNominatedNode and handleSchedulingFailure of pkg/scheduler/schedule_one.go; KEP-5278.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import INTERNAL_ERROR, ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from dra_extender.api.groups import group_of
from dra_extender.scheduling.earlynomination.nodechoice import NodeChooser
from dra_extender.scheduling.earlynomination.nominations import EarlyNomination, EarlyNominations, PendingRemovals
from dra_extender.scheduling.earlynomination.queue import EarlyNominationQueue
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.outcomes import EARLY_NOMINATIONS, EarlyNominationResult
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans
from dra_extender.scheduling.waiting import Pauses
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 0.5
"""Least and longest time between two passes over the queue."""
CONCURRENT: Final = 64
"""Requests at the same time."""
CHECK_SECONDS: Final = 1.5
"""How often the controller decides again whether a pod fits on its nominated node."""
CLEARED_SECONDS: Final = 2.0
"""How long kube-scheduler or the binding has to clear a nomination that did not help."""
UNSEEN_SECONDS: Final = 5.0
"""The watch shows a stored nomination within this time."""
STAY_ON: Final = 0.9
"""Hysteresis: the fraction of `nominate_from_nodes` down to which mode `auto` stays on."""

_API: Final = ""


class EarlyNominationController:
    """Pods and calls are reported at all times; `run` runs while this replica leads."""

    def __init__(
        self,
        handle: Handle,
        tentative_plans: TentativePlans,
        usage: ResourcesInUse,
        has_preempted: Callable[[str], bool],
        gangs: GangPlans,
    ) -> None:
        """`has_preempted`: True for pods that preemption has nominated."""
        view, ports, requeue = handle.view, handle.ports, handle.requeue
        self.nominations = EarlyNominations(tentative_plans)
        self._view = view
        self._ports = ports
        self._observer = handle.observer
        self._leading = handle.leading
        self._has_preempted = has_preempted
        self._gangs = gangs
        self._requeue = requeue
        self._queue = EarlyNominationQueue(view, requeue, has_preempted)
        self._usage = usage
        self._chooser = NodeChooser(view, handle.deferred, requeue, self._usage, self.nominations)
        self._removals = PendingRemovals(view, ports)
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)
        """While the API server refuses nominations."""
        self._idle = False
        """True after a nomination expired, until a scheduler asks about a pod."""
        self._moved = 0.0
        """When a scheduler last asked about a pod, monotonic seconds."""
        self._enabled = view.config.nominate != "never"
        self._is_on = False
        self._news = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    def pod_applied(self, pod: Pod) -> None:
        if not self._enabled:
            return
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self._settle(uid, pod.spec.node_name)
            return
        if self._view.pods.is_terminating(uid):
            self._queue.ended(uid, "")
        else:
            self._queue.waits(pod)
        nomination = self.nominations.get(uid)
        named = pod.status.nominated_node_name
        if nomination is not None and named == nomination.node:
            nomination.seen = True
        elif nomination is not None and (nomination.seen or named):
            self._forget(nomination, "cleared")
            self._queue.failed(uid)
        self._news.set()

    def pod_removed(self, uid: str) -> None:
        if self._enabled:
            self._settle(uid, "")

    def asked(self, pod: Pod) -> None:
        self._idle, self._moved = False, self._view.clock.monotonic()
        if self._enabled:
            self._queue.tried(pod)

    def answered(self, pod: Pod, names: Sequence[str], fits: bool) -> None:
        """A filter call has answered whether the pod fits on some of these nodes. After a call for the nominated node
        alone it asks about the others at once.
        """
        uid = pod.metadata.uid
        nomination = self.nominations.get(uid)
        if not self._enabled or (nomination is not None and tuple(names) == (nomination.node,)):
            return
        if nomination is not None and nomination.of_gang and pod.status.nominated_node_name != nomination.node:
            return  # the scheduler does not know the nomination yet
        if nomination is not None:  # tried before it was nominated, or kept from the node by a rule of kube-scheduler
            self._end(nomination, "cleared", after=CLEARED_SECONDS)
        if not fits:
            self._queue.refused(uid)

    def _settle(self, uid: str, node: str) -> None:
        """The pod no longer waits: it is bound to the node, or gone when `node` is empty."""
        self._queue.ended(uid, node)
        self._removals.drop(uid)
        nomination = self.nominations.drop(uid)
        if nomination is not None:
            self._usage.give_up(uid)
            self._observer.count(
                EARLY_NOMINATIONS, "gone" if not node else "bound" if node == nomination.node else "elsewhere"
            )
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        for nomination in self.nominations:
            self._usage.give_up(nomination.uid)
        self.nominations.clear()
        self._removals.clear()
        try:
            await self._removals.put_all(self._has_preempted)  # left by another replica or an earlier process
            await self._work()
        finally:
            for task in list(self._sending):
                task.cancel()

    async def _work(self) -> None:
        while self._enabled or len(self.nominations) or len(self._removals):
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            try:
                await self.work()
            except Exception as problem:
                unexpected("chores", problem)
            await asyncio.sleep(PAUSE_SECONDS)

    async def work(self) -> None:
        """Check the nominations, then make new ones."""
        self._switch()
        for nomination in self.nominations:
            await asyncio.sleep(0)
            if self.nominations.get(nomination.uid) is nomination and nomination.uid not in self._view.binding:
                await self._check(nomination)
        if self._enabled and self._pauses.over(_API):
            self._nominate_members()
        if self._is_on and not self._idle and self._pauses.over(_API):
            await self._nominate()
        if self._leading():
            await self._removals.work()

    def _switch(self) -> None:
        config, nodes = self._view.config, len(self._view.cluster.nodes)
        least = config.nominate_from_nodes * (STAY_ON if self._is_on else 1.0)
        self._is_on = config.nominate == "always" or (config.nominate == "auto" and nodes >= least)
        if not self._is_on:
            for nomination in self.nominations:
                if not nomination.of_gang:
                    self._end(nomination, "withdrawn")

    async def _check(self, nomination: EarlyNomination) -> None:
        view, uid, now = self._view, nomination.uid, self._view.clock.monotonic()
        pod = view.pods.get(uid)
        if pod is None:
            self._settle(uid, "")
        elif view.pods.is_terminating(uid):
            self._end(nomination, "gone", after=CLEARED_SECONDS)
        elif self._has_preempted(uid):
            self._forget(nomination, "cleared")
        elif nomination.is_late(now, self._moved, view.config):
            self._idle = self._idle or not self._queue.is_tried(uid)
            self._end(nomination, "expired")
            self._queue.failed(uid)
        elif (not nomination.seen and now - nomination.since >= UNSEEN_SECONDS) or (
            nomination.of_gang and not self._gangs.has(uid, nomination.node)
        ):
            self._end(nomination, "withdrawn")
        elif now - nomination.checked >= CHECK_SECONDS and nomination.of_gang:
            nomination.checked = now
            self._requeue.ended(str(group_of(pod)))
        elif now - nomination.checked >= CHECK_SECONDS:
            plan = await self._chooser.decide_again(pod, nomination.node)
            if self.nominations.get(uid) is not nomination:
                return
            if plan is None:
                self._end(nomination, "withdrawn")
            else:
                nomination.plan, nomination.checked = plan, now
                self._put(nomination)

    async def _nominate(self) -> None:
        for pod in self._queue.first():
            if len(self._sending) >= CONCURRENT or not self._leading():
                return
            if self._may_be_nominated(pod) and (nomination := await self._planned(pod)) is not None:
                self._start(pod, nomination)

    def _nominate_members(self) -> None:
        """Members of gangs, as `GangPlans.to_nominate` says."""
        for place in self._gangs.to_nominate():
            uid = place.pod.metadata.uid
            pod = self._view.pods.get(uid)
            if len(self._sending) >= CONCURRENT or not self._leading():
                return
            if pod is None or pod.status.nominated_node_name or uid in self._view.binding:
                continue
            if uid not in self.nominations and uid not in self._removals and not self._has_preempted(uid):
                plan = TentativePlan(pod_uid=uid, node=place.node, claims=(), allocations=())
                self._start(pod, self._nomination(pod, plan, of_gang=True))

    def _start(self, pod: Pod, nomination: EarlyNomination) -> None:
        task = asyncio.create_task(self._send(pod, nomination), name="nomination")
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._news.set()
        if not task.cancelled() and isinstance(problem := task.exception(), Exception):
            unexpected("chores", problem)

    async def _planned(self, pod: Pod) -> EarlyNomination | None:
        """Decide on the pod and remember its nomination; None when it fits nowhere, or may not be nominated now."""
        revision = self._requeue.revision
        plan = await self._chooser.choose(pod)
        nomination = None
        if plan is None or self.nominations.is_crowded(plan):
            self._queue.fits_nowhere(pod, revision)
        elif self._may_be_nominated(pod):
            nomination = self._nomination(pod, plan)
        await asyncio.sleep(0)  # a decision that is known already takes no turn of its own
        return nomination

    def _nomination(self, pod: Pod, plan: TentativePlan, *, of_gang: bool = False) -> EarlyNomination:
        uid, priority, now = plan.pod_uid, pod.spec.priority, self._view.clock.monotonic()
        nomination = EarlyNomination(
            uid=uid, priority=priority, node=plan.node, plan=plan, since=now, checked=now, of_gang=of_gang
        )
        self._put(nomination)
        self._usage.expect(pod, plan.node)
        return nomination

    def _put(self, nomination: EarlyNomination) -> None:
        for displaced in self._chooser.displaced(nomination):
            self._end(displaced, "displaced")
        self.nominations.put(nomination)

    def _may_be_nominated(self, pod: Pod) -> bool:
        uid = pod.metadata.uid
        return uid not in self.nominations and uid not in self._removals and self._queue.may_be_nominated(pod)

    async def _send(self, pod: Pod, nomination: EarlyNomination) -> None:
        uid = nomination.uid
        if not self._leading() or self.nominations.get(uid) is not nomination:
            self._forget(nomination, "failed")
            return
        try:
            await self._ports.nominate_pod(pod, nomination.node)
        except (ConflictError, NotFoundError):
            self._queue.outdated(pod)
            self._removals.drop(uid)
            self._forget(nomination, "failed")
        except ApiError as error:
            if error.status == INTERNAL_ERROR:
                self._queue.failed(uid)
            else:
                self._pauses.failed(_API)
            self._removals.drop(uid)
            self._forget(nomination, "failed")
            if isinstance(error, OutcomeUnknownError):
                self._removals.put(uid, nomination.node)
            log.warning("a pod was not nominated ahead of the queue", pod=pod.metadata.key, error=repr(error))
        else:
            self._pauses.forget(_API)
            self._observer.count(EARLY_NOMINATIONS, "made")

    def _end(self, nomination: EarlyNomination, how: EarlyNominationResult, after: float = 0.0) -> None:
        if self._forget(nomination, how):
            self._removals.put(nomination.uid, nomination.node, after=after, seen=nomination.seen)

    def _forget(self, nomination: EarlyNomination, how: EarlyNominationResult) -> bool:
        """Forget the nomination. False when it was forgotten before."""
        if self.nominations.get(nomination.uid) is not nomination:
            return False
        self.nominations.drop(nomination.uid)
        self._usage.give_up(nomination.uid)
        self._chooser.freed()
        self._observer.count(EARLY_NOMINATIONS, how)
        return True
