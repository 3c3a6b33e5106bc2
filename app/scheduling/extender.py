"""The verbs and the state behind them as one thing: what the service talks to.

`Extender` promises: state changes only through `apply` and `remove` (what the watches bring) and through its own
writes; the verbs never raise for what a caller or the cluster sends. `run` does what must be done without a caller:
ringing the doorbell and clearing allocations nobody uses; without it nothing is wrong, only slower to recover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

import structlog

from app.allocation.decisions import Decisions
from app.api.core import Node, Pod
from app.api.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from app.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from app.devices.cluster import Cluster
from app.scheduling.bind.binder import Binder
from app.scheduling.claims import Refusal, named_claims
from app.scheduling.extended import existing_claim
from app.scheduling.limits import Limits
from app.scheduling.outcomes import Silent
from app.scheduling.pods import Pods
from app.scheduling.ports import Clock, Observer, Ports
from app.scheduling.release.sweep import Sweeper
from app.scheduling.release.unblock import Deallocations
from app.scheduling.reservations import Reservations
from app.scheduling.state import State
from app.scheduling.verbs.filter import Filter
from app.scheduling.verbs.preempt import preempt
from app.scheduling.verbs.prioritize import prioritize
from app.scheduling.wakeups import Wakeups

log = structlog.get_logger(__name__)

Watched = Node | Pod | ResourceSlice | DeviceClass | DeviceTaintRule | ResourceClaim

CHORES_SECONDS = 1.0


class SystemClock:
    """The running event loop's time, and the time of day."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class Extender:
    """One per process. Make it on the event loop it will be used on."""

    def __init__(
        self,
        cluster: Cluster,
        decisions: Decisions,
        ports: Ports,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        limits, clock, observer = limits or Limits(), clock or SystemClock(), observer or Silent()
        self.state = State(
            cluster=cluster,
            decisions=decisions,
            ports=ports,
            clock=clock,
            observer=observer,
            limits=limits,
            wakeups=Wakeups(ports.ring, limits, observer),
            reservations=Reservations(limits.tentative_seconds, clock),
        )
        self._deallocations = Deallocations(self.state)
        self._sweeper = Sweeper(self.state)
        self._filter = Filter(self.state, self._deallocations, self._sweeper)
        self._binder = Binder(self.state)

    @property
    def pods(self) -> Pods:
        return self.state.pods

    @property
    def binds_under_way(self) -> int:
        return len(self._binder)

    # --- the verbs --------------------------------------------------------------------------------------------------

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Which nodes fit, and why the others do not."""
        return await self._filter.filter(args)

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Scores from 0 to 10 for nodes that filter let pass."""
        return prioritize(self.state, args)

    def advise(self, args: ExtenderArgs) -> list[HostPriority]:
        """The same for a scheduler that allocates by itself; nothing is remembered."""
        return prioritize(self.state, args, advising=True)

    def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """The nodes on which preemption would help, victims unchanged."""
        return preempt(self.state, args)

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Allocate, reserve and bind. An empty error means that the API server has the binding."""
        return await self._binder.bind(args)

    # --- what the watches bring -------------------------------------------------------------------------------------

    def apply(self, obj: Watched) -> None:
        """A new or changed object."""
        if isinstance(obj, Pod):
            self.on_pod(obj)
            return
        if isinstance(obj, DeviceClass):
            self.state.classes_changed()
        if isinstance(obj, ResourceClaim):
            self.state.observe(obj, watched=True)
            self.state.note_allocation(obj)
        elif self.state.cluster.apply(obj):
            self.state.wakeups.improved()

    def remove(self, obj: Watched) -> None:
        """A deleted object."""
        if isinstance(obj, Pod):
            self.on_pod_removed(obj)
            return
        if isinstance(obj, DeviceClass):
            self.state.classes_changed()
        improved = self.state.cluster.remove(obj)
        if isinstance(obj, ResourceClaim):
            self.state.quiet.pop(obj.metadata.uid, None)
            self.state.unseen.pop(obj.metadata.uid, None)
            self.state.changes.notify(obj.metadata.uid)
        if improved:
            self.state.wakeups.improved()

    def claims_in_use(self, obj: Watched) -> Iterator[ResourceClaim]:
        """The allocated claims that this change is about: the claim itself, or those of a pod that is bound."""
        known: list[ResourceClaim | None] = []
        if isinstance(obj, ResourceClaim):
            known.append(obj)
        elif isinstance(obj, Pod) and obj.spec.node_name:
            ledger, meta = self.state.cluster.ledger, obj.metadata
            names = named_claims(obj)
            if not isinstance(names, Refusal):
                known.extend(ledger.get(meta.namespace, name) for name, _ in names)
            known.append(existing_claim(obj, ledger.owned_by(meta.uid)))
        yield from (claim for claim in known if claim is not None and claim.allocation is not None)

    def poison(self, kind: str, key: str, problem: str) -> None:
        """An object (`namespace/name` or `name`) that cannot be read."""
        if kind == DeviceClass.__name__:
            self.state.classes_changed()
        if self.state.cluster.poison(kind, key, problem):
            self.state.wakeups.improved()

    def on_pod(self, pod: Pod) -> None:
        """A new or changed pod."""
        self.state.pods.apply(pod)
        uid = pod.metadata.uid
        if pod.spec.node_name or pod.finished:
            self._settle(uid)
        self.state.changes.notify(uid)

    def on_pod_removed(self, pod: Pod) -> None:
        """A deleted pod."""
        self.state.pods.remove(pod)
        self._settle(pod.metadata.uid)
        self.state.changes.notify(pod.metadata.uid)

    def _settle(self, pod_uid: str) -> None:
        """Nobody waits for the pod any more."""
        self.state.wakeups.settled(pod_uid)
        self.state.reservations.drop(pod_uid)
        self._deallocations.withdraw(pod_uid)
        self._filter.forget(pod_uid)

    # --- work without a caller --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Call it when the watches have brought everything."""
        self.state.wakeups.wake_everybody()
        self._sweeper.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.state.wakeups.run(), name="doorbell")
            group.create_task(self._do_chores(self._deallocations.work, CHORES_SECONDS), name="deallocations")
            group.create_task(self._do_chores(self._sweeper.work, 5 * CHORES_SECONDS), name="sweeper")

    async def _do_chores(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except Exception:
                log.exception("clearing unused allocations has failed unexpectedly; going on")

    async def drain(self, seconds: float) -> int:
        """Let binds that are under way end, for at most this long. How many did not."""
        return await self._binder.drain(seconds)
