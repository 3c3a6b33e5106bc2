"""The extender: its verbs, its state and its controllers.

`Extender` promises: only `apply` and its own writes change the cluster state; the verbs raise for no request and for no
cluster state. `run` runs the controllers, which requeue refused pods, clear unused allocations, preempt and nominate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.core import Pod
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.api.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from dra_extender.api.meta import ObjectKey
from dra_extender.devices.cluster import Cluster, Effects
from dra_extender.devices.validity import ObjectProblem
from dra_extender.placement.learner import PlacementLearner
from dra_extender.scheduling.bind.binder import Binder
from dra_extender.scheduling.bind.context import BindContext
from dra_extender.scheduling.bind.rollback import PendingRollbacks
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.earlynomination.controller import EarlyNominationController
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.gangs.controller import Gangs
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.handle import EventHandler, Handle, Runtime
from dra_extender.scheduling.idle import IdleAllocations
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.nomination.controller import RESTORE_PAUSE, RESTORE_SECONDS, PreemptionController
from dra_extender.scheduling.nomination.nominations import Nominations
from dra_extender.scheduling.ports import Ports, Workers
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.release.unused import Sweeper, Unblocker
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.setaside import SetAside
from dra_extender.scheduling.tentativeplans import TentativePlans
from dra_extender.scheduling.turns import query_budgets, run
from dra_extender.scheduling.verbs.filter import FilterVerb, on_whole_nodes
from dra_extender.scheduling.verbs.preempt import Preempt
from dra_extender.scheduling.verbs.prioritize import prioritize
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Signals
from dra_extender.unexpected import continuing

CONTROLLER_SECONDS = 1.0
VERB_SECONDS: Final = 1.0
"""How long a verb waits for a new leader, less than the httpTimeout of filter."""


class Extender:
    """One per process. Create it on the event loop that uses it. Questions read `view`."""

    def __init__(
        self,
        cluster: Cluster,
        decisions: Decisions,
        ports: Ports,
        *,
        runtime: Runtime | None = None,
        placement: PlacementLearner | None = None,
        workers: Workers | None = None,
    ) -> None:
        runtime, replies = runtime or Runtime(), WorkerReplies()
        config, clock, observer = runtime.config, runtime.clock, runtime.observer
        idle = IdleAllocations(clock, config)
        resources = ResourceNames(cluster.classes, clock, config)
        binding: dict[str, str] = {}
        clearing: set[str] = set()
        self.tentative_plans = TentativePlans(config.tentative_ttl, clock)
        self.nominations, self.set_aside = Nominations(), SetAside(clock)
        self._usage = ResourcesInUse()
        self._usage_with_binds = ResourcesInUse() if cluster.features.DRANodeAllocatableResources else None
        self.requeue = requeue = RequeueTrigger(ports.requeue, config, observer)
        plans = GangPlans(clock, config, observer, requeue.improved)
        self.gangs = Gangs(plans, self._usage, requeue, self.nominations.kept_from, clock)
        self.view = View(
            cluster=cluster,
            decisions=decisions,
            pods=cluster.pods,
            clock=clock,
            config=config,
            resources=resources,
            binding=MappingProxyType(binding),
            clearing=clearing,
            is_abandoned=idle.is_abandoned,
            budgets=partial(query_budgets, replies, config, limited=workers is not None),
            placement=placement.placement if placement is not None else None,
            kept=self.gangs.kept_from,
            values=plans.values,
            is_planned=plans.__contains__,
            set_aside=self.set_aside.reason,
            preempted=self.nominations.promises,
            used=self._usage_with_binds.used if self._usage_with_binds is not None else None,
        )
        self.deferred = DeferredWork(self.view, replies, workers, requeue, observer)
        self._event_handler = EventHandler(
            cluster=cluster, requeue=requeue, signals=Signals(), idle=idle, resources=resources, placement=placement
        )
        self.leading: Callable[[], bool] = lambda: True
        """Asked before every write of a bind: whether this replica still leads, by its own clock."""
        self._handle = handle = Handle(
            self.view, ports, self._event_handler, self.deferred, requeue, observer, lambda: self.leading()
        )
        self._clearer = Clearer(handle, clearing)
        self._unblocker = Unblocker(self.view, self._clearer)
        self._sweeper = Sweeper(handle, self._clearer, idle)
        self.restored = asyncio.Event()
        """Not set until a new leader knows the nominations of the previous one, and the gangs that it began to bind."""
        self.restored.set()
        self.preemption = PreemptionController(
            handle, self.nominations, cluster.budgets, self._clearer, self.gangs, self.restored
        )
        self.early_nomination = EarlyNominationController(
            handle, self.tentative_plans, self._usage, self.nominations.__contains__, plans
        )
        self._filter = FilterVerb(
            handle, self.tentative_plans, self.nominations, self._unblocker, self._sweeper, self.gangs, self.preemption
        )
        self.pending_rollbacks = PendingRollbacks(handle)
        self.binder = Binder(self._bind_context(), self.pending_rollbacks, binding)

    def _bind_context(self) -> BindContext:
        return BindContext(
            **msgspec.structs.asdict(self._handle),
            tentative_plans=self.tentative_plans,
            gangs=self.gangs,
            clearer=self._clearer,
            usage=self._usage_with_binds,
        )

    @property
    def problems(self) -> Sequence[ObjectProblem]:
        """What has not been rolled back or released yet, and why."""
        return [*self.pending_rollbacks.problems, *self._clearer.problems]

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        """Which claims the pod may preempt now; None: preemption is off."""
        return self.preemption.terms(pod) if self.view.config.preemption != "off" else None

    def set_aside_with(self, subject: Pod | ObjectKey) -> str:
        """The annotation of the lease after which no process decides on this pod and equal ones, or reads the object
        with this key.
        """
        claims = self.view.claims_of(subject) if isinstance(subject, Pod) else ()
        return self.set_aside.adding(subject, () if isinstance(claims, Unschedulable) else claims)

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """The nodes that fit, and a reason for each other node."""
        if args.NodeNames is None:
            return await run(on_whole_nodes(self.view, args))
        if reason := await self._unrestored():
            return ExtenderFilterResult(Error=reason)
        self.early_nomination.asked(args.Pod)
        found = await self._filter.filter(args)
        if not found.Error:
            self.early_nomination.answered(args.Pod, args.NodeNames, bool(found.NodeNames))
        return found

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Scores from 0 to 10 for nodes that filter let pass."""
        found, _ = await self.deferred.decide(args.Pod, lambda view: prioritize(view, args, self.tentative_plans))
        return found

    async def advise(self, args: ExtenderArgs) -> list[HostPriority]:
        """As `prioritize`, for a scheduler that allocates the devices itself. No tentative plan is kept."""
        found, _ = await self.deferred.decide(args.Pod, lambda view: prioritize(view, args, None))
        return found

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """The nodes on which preemption helps; the victims include pods that hold the needed devices."""
        pod = args.Pod
        # A nominated pod has preempted; its victims are being evicted.
        if await self._unrestored() or pod.metadata.uid in self.nominations:
            return ExtenderPreemptionResult()
        terms = self.preemption.terms(pod) if self.view.config.preemption == "on" else None
        found, _ = await self.deferred.decide(pod, Preempt(args, terms).answer)
        if found.NodeNameToMetaVictims:
            self.preemption.answered(pod.metadata.uid)
        return found

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Allocate, reserve and bind. An empty error means that the API server has the binding."""
        if reason := await self._unrestored():
            return ExtenderBindingResult(Error=reason)
        return await self.binder.bind(args)

    def apply(self, event: ClusterEvent) -> Effects:
        effects = self._event_handler.apply(event)
        if isinstance(event, Applied) and isinstance(event.object, Pod):
            pod = event.object
            self._usage.put(pod)
            if self._usage_with_binds is not None:
                if self._usage_with_binds.is_resized(pod):
                    self.requeue.improved()
                self._usage_with_binds.put(pod)
            self.gangs.pod_applied(pod)
            self.preemption.pod_applied(pod)
            self.early_nomination.pod_applied(pod)
            self._sweeper.pod_applied(pod)
            if pod.spec.node_name or pod.finished:
                self._stop_waiting(pod.metadata.uid)
        elif isinstance(event, Removed) and event.key.kind == Pod.__name__ and event.uid is not None:
            self._usage.drop(event.uid)
            if self._usage_with_binds is not None:
                self._usage_with_binds.drop(event.uid)
                self.requeue.improved()
            self.gangs.pod_removed(event.uid)
            self.early_nomination.pod_removed(event.uid)
            self._stop_waiting(event.uid)
        return effects

    def _stop_waiting(self, pod_uid: str) -> None:
        self.requeue.forget(pod_uid)
        self.tentative_plans.drop(pod_uid)
        self._unblocker.forget(pod_uid)
        self.preemption.withdraw(pod_uid)

    def learn_running_pods(self) -> Iterator[None]:
        """Count the running pods in the workload, one at a step: the workload is not stored."""
        placement = self._event_handler.placement
        for pod in self.view.pods if placement is not None and placement.learns else ():
            if pod.spec.node_name and pod.spec.resource_claims:
                claims = self.view.claims_of(pod)
                if not isinstance(claims, Unschedulable):
                    self._event_handler.learn_workload(pod, claims)
                yield

    async def run(self) -> None:
        """Run the controllers until cancelled. Call it after the first list of every kind."""
        self.requeue.requeue_all()
        self._sweeper.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.requeue.run(), name="requeue")
            group.create_task(self._repeat(self._unblocker.work, CONTROLLER_SECONDS), name="unblocker")
            group.create_task(self._repeat(self._sweeper.work, 5 * CONTROLLER_SECONDS), name="sweeper")
            group.create_task(self._repeat(self.pending_rollbacks.work, CONTROLLER_SECONDS), name="rollbacks")
            await self._restore()
            if self.view.config.preemption != "off":
                group.create_task(self._repeat(self.preemption.work, CONTROLLER_SECONDS), name="preemption")
            group.create_task(self._repeat(self.gangs.work, CONTROLLER_SECONDS), name="gangs")
            group.create_task(self.early_nomination.run(), name="early nomination")

    async def _restore(self) -> None:
        self.restored.clear()
        if self.view.config.preemption == "on":
            await continuing("chores", self.preemption.restore())
        with suppress(TimeoutError):  # gangs that are left are planned when kube-scheduler asks about them
            async with asyncio.timeout(RESTORE_SECONDS):
                await continuing("chores", self._restore_gangs())
        self.restored.set()

    async def _restore_gangs(self) -> None:
        """Plan all half-bound gangs, again and again while workers work."""
        left, working = await self.gangs.begun(self.view), True
        while left and working:
            working = len(self.deferred) > 0  # a worker may answer in this round
            left = [pod for pod in left if await continuing("chores", self.gangs.restore(pod, self.deferred.decide))]
            working = working or len(self.deferred) > 0
            await asyncio.sleep(RESTORE_PAUSE if left else 0)

    async def _unrestored(self) -> str:
        """Why the verbs may not decide. Waits for `_restore` first, so this is empty nearly always."""
        try:
            async with asyncio.timeout(VERB_SECONDS):
                await self.restored.wait()
        except TimeoutError:
            return "dra-extender: a new leader restores the nominations and the plans of gangs"
        return ""

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await continuing("chores", work())

    async def drain(self, seconds: float) -> int:
        """Wait up to `seconds` for binds in progress, then cancel them. Returns how many were cancelled."""
        left = await self.binder.drain(seconds)
        await self.deferred.drain()
        return left
