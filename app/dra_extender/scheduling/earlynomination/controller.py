"""The controller that nominates pods ahead of kube-scheduler's queue.

Promises
- Pods are nominated in kube-scheduler's order, as many as are bound within the next seconds. The plans of the pods
  before a pod count as taken for it.
- A pod is nominated only for a node where it fits now, by its devices and by the resources, taints and labels of the
  node. The nomination is removed within seconds when the pod no longer fits there or is not bound in time.
- Nominations of other components and of preemption are not touched: the write is for the very version of the pod that
  shows no nomination, or ours. A removal is retried until it succeeds, however late the watch shows the nomination.
- The members of a gang are nominated for the nodes of its plan when kube-scheduler asks about a part of the nodes only.
  These nominations end with the plan. Until a scheduler has asked about the nodes, the gang is requeued.
- Correctness does not depend on early nominations: a wrong, late or missing one costs kube-scheduler one ordinary
  cycle.
- Only the leader nominates. A new leader removes the nominations that the old one left on pods: the API server says who
  wrote them.

Rules: Kubernetes 1.36, evaluateNominatedNode and handleSchedulingFailure of pkg/scheduler/schedule_one.go; KEP-5278.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import INTERNAL_ERROR, ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from dra_extender.api.groups import group_of
from dra_extender.scheduling.earlynomination.nodechoice import NodeChooser
from dra_extender.scheduling.earlynomination.queue import EarlyNominationQueue
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.outcomes import EARLY_NOMINATIONS
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans
from dra_extender.scheduling.turns import PORTION
from dra_extender.scheduling.waiting import Backoffs
from dra_extender.unexpected import continuing, unexpected

log = structlog.get_logger(__name__)

PASS_SECONDS: Final = 0.05
CONCURRENT: Final = 64
"""Requests at the same time."""
CHECK_SECONDS: Final = 1.5
"""How often the controller decides again whether a pod fits on its nominated node."""
REMOVAL_SECONDS: Final = 1.0
"""How long kube-scheduler or the binding has to clear a nomination that did not help."""

_API: Final = ""


class EarlyNomination(msgspec.Struct, eq=False):
    """The node that kube-scheduler is to try first for a pod. Times are monotonic seconds."""

    uid: str
    node: str
    since: float
    due: float
    """When to check it again, or, when it is `ending`, to remove it."""
    plan: TentativePlan | None = None
    """None: the plan of a gang holds the devices, or the nomination is ending."""
    made: bool = False
    seen: bool = False
    """True once the watch has shown it. Until then the watch may show it at any time."""
    sending: bool = False
    ending: bool = False
    ours: bool = True
    """False: unknown who nominated the pod."""


@dataclass(eq=False)
class EarlyNominationController:
    """Pods and calls are reported at all times; `run` runs while this replica leads."""

    _handle: Handle
    _tentative_plans: TentativePlans
    _usage: ResourcesInUse
    _has_preempted: Callable[[str], bool]
    """True for pods that preemption has nominated."""
    _gangs: GangPlans

    def __post_init__(self) -> None:
        self.nominations: dict[str, EarlyNomination] = {}
        """By UID of the pod."""
        self._view = view = self._handle.view
        self._queue = EarlyNominationQueue(view, self._handle.requeue)
        self._chooser = NodeChooser(self._handle, self._tentative_plans, self._usage)
        self._backoffs: Backoffs[str] = Backoffs(view.clock, view.config)
        """While the API server refuses nominations; by UID, while the watch is late for a pod."""
        self._idle = False
        """True after a nomination was late, until a scheduler asks about a pod."""
        self._enabled = view.config.nominate != "never"
        self._sending: set[asyncio.Task[None]] = set()

    def pod_applied(self, pod: Pod) -> None:
        uid, named = pod.metadata.uid, pod.status.nominated_node_name
        if pod.spec.node_name:
            self._settle(uid, pod.spec.node_name)
            return
        if self._enabled:
            self._queue.waits(pod)
        if (nomination := self.nominations.get(uid)) is not None:
            if named == nomination.node:
                nomination.seen = True
            elif nomination.seen or named:  # another client has cleared or replaced it
                self._queue.failed(uid)
                self._drop(nomination)
        elif named and self._handle.leading() and not self._has_preempted(uid):
            self._find_owner(pod, self._view.clock.monotonic() + CHECK_SECONDS)  # most are bound before

    def pod_removed(self, uid: str) -> None:
        self._settle(uid, "")

    def asked(self, pod: Pod) -> None:
        self._idle = False
        if self._enabled:
            self._queue.tried(pod)

    def answered(self, pod: Pod, names: Sequence[str], fits: bool) -> None:
        """A filter call has answered whether the pod fits on some of these nodes. After a call for the nominated node
        alone it asks about the others at once. A call for others means that the pod was tried before it was nominated,
        or a rule of kube-scheduler keeps it from the node.
        """
        nomination = self.nominations.get(pod.metadata.uid)
        if nomination is not None and not nomination.ending:
            is_unknown = nomination.plan is None and pod.status.nominated_node_name != nomination.node
            if is_unknown or tuple(names) == (nomination.node,):
                return
            self._end(nomination)
        if not fits:
            self._queue.refused(pod.metadata.uid)

    def _settle(self, uid: str, node: str) -> None:
        """The pod no longer waits: it is bound to the node, or gone when `node` is empty."""
        self._queue.ended(uid, node)
        if (nomination := self.nominations.get(uid)) is not None:
            self._drop(nomination, node)

    async def run(self) -> None:
        """Until cancelled."""
        for nomination in list(self.nominations.values()):
            self._drop(nomination)
        for pod in self._view.pods:
            if pod.status.nominated_node_name and not pod.spec.node_name:
                self._find_owner(pod, 0.0)
        try:
            while self._enabled or self.nominations:
                await continuing("chores", self.work())
                await asyncio.sleep(PASS_SECONDS)
        finally:
            for task in list(self._sending):
                task.cancel()

    def _find_owner(self, pod: Pod, due: float) -> None:
        """Another replica, an earlier process or another component has nominated the pod: remove it if it is ours."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        self.nominations[uid] = EarlyNomination(uid, node, 0.0, due, seen=True, ending=True, ours=False)

    async def work(self) -> None:
        """Check and remove nominations, then make new ones."""
        now = self._view.clock.monotonic()
        for nomination in [each for each in self.nominations.values() if each.due <= now and not each.sending]:
            await asyncio.sleep(0)
            uid = nomination.uid
            if self.nominations.get(uid) is not nomination or uid in self._view.binding:
                continue
            pod = self._view.pods.get(uid)
            if self._has_preempted(uid):
                self._drop(nomination)
            elif not nomination.ending:
                await self._check(nomination, pod)
            elif pod is not None and pod.status.nominated_node_name == nomination.node and self._may_send():
                self._send(nomination, self._remove(nomination, pod))
        if self._enabled and self._backoffs.over(_API):
            await self._nominate()

    async def _check(self, nomination: EarlyNomination, pod: Pod | None) -> None:
        uid, now, config = nomination.uid, self._view.clock.monotonic(), self._view.config
        if pod is None or self._view.pods.is_terminating(uid):
            self._end(nomination)
        elif now - nomination.since >= config.nominated_seconds:
            self._idle = True
            self._end(nomination)
        elif nomination.plan is None:
            nomination.due = now + CHECK_SECONDS
            if self._gangs.has(uid, nomination.node):
                self._handle.requeue.ended(str(group_of(pod)))
            else:
                self._end(nomination)
        else:
            plan = await self._chooser.choose(pod, nomination.node)
            if self.nominations.get(uid) is nomination and not nomination.ending:
                if plan is not None:
                    self._keep(nomination, plan)
                else:
                    self._end(nomination)

    async def _nominate(self) -> None:
        """Members of gangs, as `GangPlans.to_nominate` says, then the next pods of the queue."""
        for number, place in enumerate(self._gangs.to_nominate(), start=1):
            if number % PORTION == 0:
                await asyncio.sleep(0)
            pod = self._view.pods.get(place.pod.metadata.uid)
            if pod is None or not self._queue.is_ours(pod) or not self._backoffs.over(pod.metadata.uid):
                continue
            if self._may_send() and self._is_free(pod):
                self._start(pod, place.node)
        config = self._view.config
        is_large = config.nominate == "always" or len(self._view.cluster.nodes) >= config.nominate_from_nodes
        for pod in self._queue.first() if is_large and not self._idle else ():
            if not self._may_send():
                return
            uid, revision = pod.metadata.uid, self._handle.requeue.revision
            if not self._is_free(pod) or not self._queue.is_next(uid):
                continue
            plan = await self._chooser.choose(pod)
            if plan is None:
                self._queue.fits_nowhere(uid, revision)
            elif self._view.pods.get(uid) is pod and self._is_free(pod) and self._queue.is_next(uid):
                self._start(pod, plan.node, plan)
            await asyncio.sleep(0)  # a decision that is known already takes no turn of its own

    def _may_send(self) -> bool:
        return len(self._sending) < CONCURRENT and self._handle.leading()

    def _is_free(self, pod: Pod) -> bool:
        """True when the pod has no nomination and is not being bound."""
        uid = pod.metadata.uid
        known = uid in self.nominations or uid in self._view.binding or self._has_preempted(uid)
        return not known and not pod.status.nominated_node_name

    def _start(self, pod: Pod, node: str, plan: TentativePlan | None = None) -> None:
        uid, now = pod.metadata.uid, self._view.clock.monotonic()
        nomination = self.nominations[uid] = EarlyNomination(uid, node, now, now + CHECK_SECONDS)
        self._usage.assume(pod, node)
        if plan is not None:
            self._keep(nomination, plan)
        self._send(nomination, self._write(nomination, pod))

    def _keep(self, nomination: EarlyNomination, plan: TentativePlan) -> None:
        """The pod has this plan now. Other nominations whose plans name devices of it end: their pods have lower
        priority, or a bind in progress decided differently.
        """
        nomination.plan, nomination.due = plan, self._view.clock.monotonic() + CHECK_SECONDS
        for other in self.nominations.values():
            if other is not nomination and other.plan is not None and not plan.devices.isdisjoint(other.plan.devices):
                self._end(other)
        self._tentative_plans.put(plan)

    def _end(self, nomination: EarlyNomination) -> None:
        """Remove the nomination soon, unless kube-scheduler or the binding clears it before."""
        nomination.ending, nomination.due = True, self._view.clock.monotonic() + REMOVAL_SECONDS
        self._queue.failed(nomination.uid)
        self._release(nomination)

    def _drop(self, nomination: EarlyNomination, node: str = "") -> None:
        """The pod no longer has this nomination, perhaps because it is bound to the node."""
        self._release(nomination)
        if self.nominations.get(nomination.uid) is nomination:
            del self.nominations[nomination.uid]
            if nomination.made:
                self._handle.observer.count(EARLY_NOMINATIONS, "bound" if node == nomination.node else "missed")

    def _release(self, nomination: EarlyNomination) -> None:
        """The pod is no longer expected on the node."""
        if nomination.plan is not None:
            self._tentative_plans.drop(nomination.uid)
            nomination.plan = None
        if self._usage.forget(nomination.uid):
            self._chooser.freed()

    def _send(self, nomination: EarlyNomination, write: Coroutine[None, None, None]) -> None:
        def sent(task: asyncio.Task[None]) -> None:
            nomination.sending = False
            self._sending.discard(task)
            if not task.cancelled() and isinstance(problem := task.exception(), Exception):
                unexpected("chores", problem)

        nomination.sending = True
        task = asyncio.create_task(write, name="nomination")
        self._sending.add(task)
        task.add_done_callback(sent)

    async def _name(self, pod: Pod, node: str | None) -> None:
        version = pod.metadata.resource_version
        await self._handle.ports.patch_pod_status(pod, {"nominatedNodeName": node}, version=version, ahead=True)

    async def _write(self, nomination: EarlyNomination, pod: Pod) -> None:
        if not self._handle.leading() or nomination.ending:
            self._drop(nomination)
            return
        try:
            await self._name(pod, nomination.node)
        except ApiError as error:
            self._handle.observer.count(EARLY_NOMINATIONS, "failed")
            if isinstance(error, OutcomeUnknownError):
                self._end(nomination)
            else:
                self._drop(nomination)
            if isinstance(error, ConflictError | NotFoundError):
                self._queue.fits_nowhere(nomination.uid)
                self._backoffs.failed(nomination.uid)
                return
            if error.status == INTERNAL_ERROR:  # the pod may be too large for etcd
                self._queue.failed(nomination.uid)
            else:
                self._backoffs.failed(_API)
            log.warning("a pod was not nominated ahead of the queue", pod=pod.metadata.key, error=repr(error))
        else:
            nomination.made = True
            self._backoffs.forget(_API)
            self._handle.observer.count(EARLY_NOMINATIONS, "made")

    async def _remove(self, nomination: EarlyNomination, pod: Pod) -> None:
        """Remove the nomination, or find out whose it is."""
        if not self._handle.leading():
            return
        now = self._view.clock.monotonic()
        try:
            if nomination.ours:
                await self._name(pod, None)
            elif node := await self._handle.ports.nominated_ahead(pod):  # the watch may show an older one
                nomination.ours, nomination.seen, nomination.node = True, node == nomination.node, node
                return
            self._drop(nomination)
        except (ConflictError, NotFoundError):  # the watch will bring the newer version
            nomination.due = now + PASS_SECONDS
        except ApiError as error:
            nomination.due = now + self._view.config.initial_backoff_seconds
            log.warning("a nomination was not removed, will try again", pod=pod.metadata.key, error=repr(error))
