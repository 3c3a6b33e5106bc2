"""What a service decides with, once it knows its API server: state, watches, decisions and writes.

`Engine` promises: the work without a caller (waking, clearing) runs exactly while this replica leads and knows the
cluster; every node is looked at once before the verbs ask; the audit begins when the whole cluster is known.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from itertools import chain
from typing import Any

import structlog

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.http.metrics import Metrics
from dra_extender.kube.client import KubeClient
from dra_extender.kube.discovery import Served
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.watches import Watches
from dra_extender.kube.writer import Writer
from dra_extender.placement.placement import Placement
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.slices import Slices, run
from dra_extender.service.audit import Audit
from dra_extender.service.diagnoses import Diagnoses
from dra_extender.service.following import Following
from dra_extender.service.memory import Memory
from dra_extender.service.settings import Settings
from dra_extender.service.sink import ClusterSink
from dra_extender.service.stock import StockReadings
from dra_extender.unexpected import unexpected
from dra_extender.workers.pool import WorkerPool

log = structlog.get_logger(__name__)

_PORTION = 100
"""Nodes and pods looked at in one go, a few milliseconds."""
_WARM_PERIOD = 30.0
"""Seconds after which a standby looks at what has changed."""


class Engine:
    """One per service, made when the API server has been found."""

    def __init__(
        self, client: KubeClient, served: Served, settings: Settings, metrics: Metrics, *, own_process: bool = False
    ) -> None:
        self.cluster = Cluster(settings.features)
        self.events = EventRecorder(client, settings.replica)
        self.writer = Writer(client, served, self.events, settings.requeue_target)
        self.decisions = Decisions(self.cluster, step_budget=settings.step_budget, share_ids=lambda: str(uuid.uuid4()))
        self.workers = WorkerPool(settings.worker_limits)
        self.extender = Extender(
            self.cluster,
            self.decisions,
            self.writer,
            config=settings.config,
            observer=metrics,
            placement=Placement(self.cluster, settings.strategy, settings.expected),
            workers=self.workers,
        )
        ledger, undecided = self.cluster.ledger, self.extender.view.is_being_bound
        self.audit = Audit(ledger.violations, self.cluster.claim, self._report_violation, undecided)
        self.diagnoses = Diagnoses(self.extender.view, lambda: self.extender.requeue.pods, self._report_waiting)
        self.stock = StockReadings(self.extender.view, self.diagnoses.waiting, self.diagnoses.rule)
        self._diagnose = settings.diagnose and not settings.advise_only
        self._known = asyncio.Event()
        self._warm = False
        self.sink = ClusterSink(self.cluster, self.extender, self.audit, self._known.is_set)
        budgets = settings.preemption != "off"
        self.watches = Watches(client, served, self.sink, budgets=budgets, on_synced=self._synced)
        self.following = Following(self.watches.progress, settings.watch_gap, self.watches.longest_gap)
        self._memory = Memory(own=own_process)
        self._started = time.perf_counter()
        self._leading = False
        self._turn = asyncio.Event()

    def jobs(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What has to run all the time."""
        yield self.watches.run()
        yield self.events.run()
        yield self._work()
        yield self._look_around()
        yield self._audit()
        yield self._take_stock()
        if self._diagnose:
            yield self.diagnoses.run()
        yield self._memory.give_back()

    def fence(self, leading: Callable[[], bool]) -> None:
        """What to ask before every write of a bind: whether this replica still leads, by its own clock."""
        self.extender.fence(leading)

    @property
    def warming(self) -> str:
        """What is still to be done before the first call is answered as fast as the others; empty when it is done."""
        return "" if self._warm else "not warm: looking at nodes and pods"

    def lead(self, leading: bool) -> None:
        """From now on this replica decides, and wakes and clears without a caller; or it stops doing so."""
        self._leading = leading
        self._turn.set()

    async def settle(self, seconds: float) -> None:
        """Until binds under way are done, no longer than that; they go on."""
        await self.extender.settle(seconds)

    async def drain(self, seconds: float) -> None:
        """Until binds under way are done, no longer than that."""
        left = await self.extender.drain(seconds)
        await self.workers.close()
        if left:
            log.warning("binds did not end in time", binds=left)

    async def _work(self) -> None:
        """The extender's own work, while this replica leads and knows the cluster. Raises what that work raises."""
        work: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                await self._turn.wait()
                self._turn.clear()
                if self._leading and self.watches.synced and work is None:
                    work = group.create_task(self.extender.run(), name="scheduling")
                elif not self._leading and work is not None:
                    await _cancelled(work)
                    work = None

    async def _look_around(self) -> None:
        """Look at every node and every pod that runs once, and ask what the first pods will, between other work: the
        first filter would do it for thousands of nodes in one go. A standby does it again and again, so that it could
        lead at any time.
        """
        await self._known.wait()
        await self._look()
        self._memory.keep()
        self._warm = True
        while True:
            await asyncio.sleep(_WARM_PERIOD)
            if not self._leading:
                await self._look()

    async def _look(self) -> None:
        try:
            await run(self._looking())
        except Exception as problem:  # decisions will look by themselves
            unexpected("inventory", problem)

    def _looking(self) -> Slices[None]:
        for number, _ in enumerate(chain(self.cluster.inventory.nodes.look(), self.extender.recall()), start=1):
            if number % _PORTION == 0:
                yield
        yield from self.extender.warm_up()

    async def _audit(self) -> None:
        """Before everything was listed there is nothing to say."""
        await self._known.wait()
        await self.audit.run()

    async def _take_stock(self) -> None:
        """Before everything was listed the numbers would be wrong."""
        await self._known.wait()
        await self.stock.run()

    def _synced(self) -> None:
        self._known.set()
        self._turn.set()
        log.info(
            "cluster known",
            nodes=len(self.cluster.nodes),
            claims=sum(1 for _ in self.cluster.ledger.claims()),
            seconds=round(time.perf_counter() - self._started, 2),
        )
        self._memory.keep_anew()

    def _report_waiting(self, about: Pod | ResourceClaim, reason: str, note: str) -> None:
        self.writer.record_event(about, "Warning", reason, note)

    def _report_violation(self, claim: ResourceClaim, text: str) -> None:
        self.writer.record_event(claim, "Warning", "DeviceHeldTwice", text, action="Auditing")


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Wait until the task has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
