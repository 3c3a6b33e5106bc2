"""Who is nominated ahead of kube-scheduler's queue, for which node, and for how long.

Promises
- Pods come in kube-scheduler's order, as many as will be bound in the next seconds; what those before a pod would take
  counts as taken for it, and each decision is made in counted turns of the event loop.
- A pod is nominated only where it fits now, as far as devices, resources, taints and labels of the node tell. Where it
  does not any more, or is not bound in time, the nomination is taken back within seconds.
- Nobody else's nomination is touched, and none of preemption's.
- Nothing depends on it: a nomination that is wrong, late or missing costs kube-scheduler one ordinary cycle.
- Only the leader nominates. A new one goes on with what the old one has left on pods.

Rules: Kubernetes 1.36, evaluateNominatedNode and handleSchedulingFailure of pkg/scheduler/schedule_one.go; KEP-5278.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError, OutcomeUnknownError
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.outcomes import HINTS, HintResult
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.planning.choosing import Chooser
from dra_extender.scheduling.planning.doubts import Doubts
from dra_extender.scheduling.planning.hints import Hint, Hints
from dra_extender.scheduling.planning.occupancy import Occupancy
from dra_extender.scheduling.planning.upcoming import Upcoming
from dra_extender.scheduling.planning.withdrawals import UNSEEN_SECONDS, Withdrawals
from dra_extender.scheduling.ports import Observer, PodWriter
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.reservations import Reservations
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 0.5
"""Between two looks at the queue: at least, and at most."""
AT_ONCE: Final = 64
"""Requests under way at the same time."""
PORTION: Final = 32
"""Hints that are looked after in one turn."""
LOOK_SECONDS: Final = 1.5
"""How often it is decided again whether a pod fits where it is nominated."""
LEFT_SECONDS: Final = 2.0
"""So long kube-scheduler, or the binding, gets to clear a nomination that was of no use."""
STAY_ON: Final = 0.9
"""With this part of the nodes from which it is on, it stays on."""

_API: Final = ""


class Planner:
    """One per service. Tell it of pods and calls at all times; `run` it while this replica leads."""

    def __init__(
        self,
        view: View,
        ports: PodWriter,
        reservations: Reservations,
        deferred: DeferredWork,
        requeue: RequeueTrigger,
        observer: Observer,
        leading: Callable[[], bool],
        makes_room: Callable[[str], bool],
    ) -> None:
        """`makes_room`: true for pods that have a nomination of preemption's."""
        self.hints = Hints(reservations)
        self._view = view
        self._ports = ports
        self._observer = observer
        self._leading = leading
        self._makes_room = makes_room
        self._requeue = requeue
        self._upcoming = Upcoming(view, requeue, makes_room)
        self._occupancy = Occupancy()
        self._chooser = Chooser(view, deferred, requeue, self._occupancy, self.hints)
        self._withdrawals = Withdrawals(view, ports)
        self._doubts = Doubts(view, ports, makes_room)
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)
        """Of the API server, when it does not take what is written."""
        self._idle = False
        """True when a nomination has expired and no scheduler has asked about any pod since."""
        self._moved = 0.0
        """When a scheduler asked about a pod last, monotonic seconds."""
        self._follows = view.config.nominate != "never"
        self._is_on = False
        self._news = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    # --- what happens -----------------------------------------------------------------------------------------------

    def seen(self, pod: Pod) -> None:
        """A version of a pod."""
        if not self._follows:
            return
        uid = pod.metadata.uid
        self._occupancy.put(pod)
        if pod.spec.node_name or self._view.pods.leaving(uid):
            self._settle(uid, pod.spec.node_name)
            return
        self._upcoming.waits(pod)
        hint = self.hints.get(uid)
        if hint is not None:
            self._compare(hint, pod)
        elif uid not in self._withdrawals:
            self._doubts.unattended(pod)
        self._news.set()

    def gone(self, uid: str) -> None:
        """The pod is deleted."""
        if self._follows:
            self._occupancy.drop(uid)
            self._settle(uid, "")

    def asked(self, pod: Pod) -> None:
        """A scheduler tries the pod."""
        self._idle, self._moved = False, self._view.clock.monotonic()
        if self._follows:
            self._upcoming.tried(pod)

    def answered(self, pod: Pod, names: Sequence[str], fits: bool) -> None:
        """The pod fits on some of these nodes, or on none. With one name it may be asked about others at once."""
        uid = pod.metadata.uid
        hint = self.hints.get(uid)
        if not self._follows or (hint is not None and tuple(names) == (hint.node,)):
            return
        if hint is not None:  # popped before it was nominated, or did not fit there for what only kube-scheduler knows
            self._end(hint, "cleared", after=LEFT_SECONDS)
        if not fits:
            self._upcoming.refused(uid)

    def _settle(self, uid: str, node: str) -> None:
        """The pod does not wait any more: it is bound, or will not be."""
        self._upcoming.ended(uid, node)
        self._withdrawals.drop(uid)
        self._doubts.drop(uid)
        hint = self.hints.drop(uid)
        if hint is not None:
            self._occupancy.give_up(uid)
            self._observer.count(HINTS, "gone" if not node else "bound" if node == hint.node else "elsewhere")
        self._news.set()

    def _compare(self, hint: Hint, pod: Pod) -> None:
        """What has become of the nomination, as the pod says."""
        named = pod.status.nominated_node_name
        if named == hint.node:
            hint.seen = True
        elif hint.seen or named:
            self._forget(hint, "cleared")
            self._upcoming.failed(hint.uid)

    # --- work -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        self.hints.clear()
        self._withdrawals.clear()
        self._doubts.clear()
        try:
            await self._doubts.look_round()  # what another replica, or an earlier process, has left on pods
            await self._work()
        finally:
            for task in list(self._sending):
                task.cancel()

    async def _work(self) -> None:
        while self._follows or len(self.hints) or len(self._withdrawals) or len(self._doubts):
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

    async def _adopt(self) -> None:
        """From now on look after those nominations that turn out to be ours."""
        for pod in await self._doubts.settle():
            uid, node, now = pod.metadata.uid, pod.status.nominated_node_name, self._view.clock.monotonic()
            if uid in self.hints or uid in self._withdrawals:
                continue
            self._observer.count(HINTS, "adopted")
            self.hints.put(
                Hint(uid=uid, priority=pod.spec.priority, node=node, plan=None, since=now, looked=0.0, seen=True)
            )
            self._occupancy.expect(pod, node)

    async def work(self) -> None:
        """Look after the nominations there are, then make new ones."""
        if self._leading():
            await self._adopt()
        self._switch()
        await self._look_after()
        if self._is_on and not self._idle and self._pauses.over(_API):
            await self._nominate()
        if self._leading():
            await self._withdrawals.work()

    def _switch(self) -> None:
        config, nodes = self._view.config, len(self._view.cluster.nodes)
        least = config.nominate_from_nodes * (STAY_ON if self._is_on else 1.0)
        self._is_on = config.nominate == "always" or (config.nominate == "auto" and nodes >= least)
        if not self._is_on:
            for hint in self.hints:
                self._end(hint, "withdrawn")

    async def _look_after(self) -> None:
        for number, hint in enumerate(self.hints, start=1):
            if number % PORTION == 0:
                await asyncio.sleep(0)
            if self.hints.get(hint.uid) is hint and hint.uid not in self._view.binding:
                await self._tend(hint)

    async def _tend(self, hint: Hint) -> None:
        view, uid, now = self._view, hint.uid, self._view.clock.monotonic()
        pod = view.pods.get(uid)
        if pod is None:
            self._settle(uid, "")
        elif self._makes_room(uid):
            self._forget(hint, "cleared")
        elif hint.is_late(now, self._moved, view.config):
            self._idle = self._idle or not self._upcoming.is_tried(uid)
            self._end(hint, "expired")
            self._upcoming.expired(uid)
        elif not hint.seen and now - hint.since >= UNSEEN_SECONDS:
            self._end(hint, "withdrawn")
        elif now - hint.looked >= LOOK_SECONDS:
            plan = await self._chooser.again(pod, hint.node)
            if self.hints.get(uid) is not hint:
                return
            if plan is None:
                self._end(hint, "withdrawn")
            else:
                hint.plan, hint.looked = plan, now
                self._put(hint)

    # --- new ones ---------------------------------------------------------------------------------------------------

    async def _nominate(self) -> None:
        for pod in self._upcoming.first():
            if len(self._sending) >= AT_ONCE or not self._leading():
                return
            if self._may_be_nominated(pod) and (hint := await self._planned(pod)) is not None:
                task = asyncio.create_task(self._send(pod, hint), name="nomination")
                self._sending.add(task)
                task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._news.set()
        if not task.cancelled() and isinstance(problem := task.exception(), Exception):
            unexpected("chores", problem)

    async def _planned(self, pod: Pod) -> Hint | None:
        """The pod with what it would take, from now on; None when it fits nowhere."""
        uid, generation = pod.metadata.uid, self._requeue.generation
        plan = await self._chooser.choose(pod)
        now = self._view.clock.monotonic()
        if plan is None:
            self._upcoming.fits_nowhere(pod, generation)
            hint = None
        elif self._may_be_nominated(pod):
            hint = Hint(uid=uid, priority=pod.spec.priority, node=plan.node, plan=plan, since=now, looked=now)
            self._put(hint)
            self._occupancy.expect(pod, plan.node)
        else:
            hint = None
        await asyncio.sleep(0)  # a decision that is known already takes no turn of its own
        return hint

    def _put(self, hint: Hint) -> None:
        """With its plan as it is now."""
        for displaced in self._chooser.displaced(hint):
            if displaced.uid in self._view.binding:
                displaced.plan = None  # the bind has decided for itself
            else:
                self._end(displaced, "displaced")
        self.hints.put(hint)

    def _may_be_nominated(self, pod: Pod) -> bool:
        uid = pod.metadata.uid
        return uid not in self.hints and uid not in self._withdrawals and self._upcoming.may_be_nominated(pod)

    async def _send(self, pod: Pod, hint: Hint) -> None:
        uid = hint.uid
        if not self._leading() or self.hints.get(uid) is not hint:
            self._forget(hint, "failed")
            return
        self._doubts.wrote(uid, hint.node)
        try:
            await self._ports.nominate_pod(pod, hint.node)
        except (ConflictError, NotFoundError):
            self._upcoming.outdated(pod)
            self._forget(hint, "failed")
        except ApiError as error:
            self._pauses.failed(_API)
            self._forget(hint, "failed")
            if isinstance(error, OutcomeUnknownError):
                self._withdrawals.put(uid, hint.node, doubtful=True)
            log.warning("a pod was not nominated ahead of the queue", pod=pod.metadata.key, error=repr(error))
        else:
            self._pauses.forget(_API)
            self._observer.count(HINTS, "made")

    # --- the end ----------------------------------------------------------------------------------------------------

    def _end(self, hint: Hint, how: HintResult, after: float = 0.0) -> None:
        """The pod's nomination has to go."""
        if self._forget(hint, how):
            self._withdrawals.put(hint.uid, hint.node, after=after)

    def _forget(self, hint: Hint, how: HintResult) -> bool:
        """Nothing is expected of the hint any more. False when that was so before."""
        if self.hints.get(hint.uid) is not hint:
            return False
        self.hints.drop(hint.uid)
        self._occupancy.give_up(hint.uid)
        self._chooser.freed()
        self._observer.count(HINTS, how)
        return True
