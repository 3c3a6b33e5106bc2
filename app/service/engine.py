"""What a service decides with, once it knows its API server: state, watches, decisions and writes.

`Engine` promises: every change that the watches bring reaches the cluster's state and scheduling, in order, on the
event loop; nothing is decided before every kind was listed once, or while a kind has not been watched for too long.
"""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog

from app.allocation.decisions import Decisions
from app.api.resource import ResourceClaim
from app.devices.cluster import Cluster
from app.http.health import Check
from app.http.metrics import Metrics, Reading
from app.kube.client import KubeClient
from app.kube.discovery import Served
from app.kube.events import EventRecorder
from app.kube.watches import Watches
from app.kube.writer import Writer
from app.scheduling.extender import Extender
from app.service.audit import Audit
from app.service.settings import Settings

log = structlog.get_logger(__name__)

_PORTION = 100
"""Nodes looked at in one go, a few milliseconds."""


class Engine:
    """One per service, made when the API server has been found."""

    def __init__(
        self, client: KubeClient, served: Served, settings: Settings, metrics: Metrics, *, own_process: bool = False
    ) -> None:
        self.cluster = Cluster(settings.features)
        self.events = EventRecorder(client, settings.replica)
        self.writer = Writer(client, served, self.events, settings.bell)
        self.decisions = Decisions(self.cluster, step_budget=settings.step_budget, share_ids=lambda: str(uuid.uuid4()))
        self.extender = Extender(self.cluster, self.decisions, self.writer, limits=settings.limits, observer=metrics)
        self.watches = Watches(client, served, self, on_synced=self._synced)
        ledger, undecided = self.cluster.ledger, self.extender.state.is_being_bound
        self.audit = Audit(ledger.violations, ledger.get, self._tell_violation, undecided)
        self._gap = settings.watch_gap
        self._own_process = own_process
        self._started = time.perf_counter()
        self._leading = False
        self._turn = asyncio.Event()
        self._known = asyncio.Event()

    def jobs(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What has to run all the time."""
        yield self.watches.run()
        yield self.events.run()
        yield self._work()
        yield self._look_around()
        yield self._audit()

    def fence(self, leading: Callable[[], bool]) -> None:
        """What to ask before every write of a bind: whether this replica still leads, by its own clock."""
        self.extender.state.leading = leading

    def lead(self, leading: bool) -> None:
        """Whether this replica decides from now on, and clears and wakes what is left without a caller."""
        self._leading = leading
        self._turn.set()

    async def drain(self, seconds: float) -> None:
        """Until binds under way are done, no longer than that."""
        left = await self.extender.drain(seconds)
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
        """Look at every node once, between other work: the first filter would look at thousands in one go."""
        await self._known.wait()
        try:
            for number, _ in enumerate(self.cluster.inventory.nodes.look(), start=1):
                if number % _PORTION == 0:
                    await asyncio.sleep(0)
        except Exception:  # decisions will look by themselves
            log.exception("not all nodes were looked at")
        self._keep()

    async def _audit(self) -> None:
        """Before everything was listed there is nothing to say."""
        await self._known.wait()
        await self.audit.run()

    # --- the sink of the watches ---

    def apply(self, obj: Any) -> None:
        self.extender.apply(obj)
        if self._known.is_set():  # before that, the first look has everything
            for claim in self.extender.claims_in_use(obj):
                self.audit.notice(self.cluster.ledger.violations_of(claim))

    def remove(self, obj: Any) -> None:
        self.extender.remove(obj)

    def poison(self, kind: str, key: str, problem: str) -> None:
        log.warning("object left out", kind=kind, name=key, problem=problem)
        self.extender.poison(kind, key, problem)

    def heal(self, kind: str, key: str) -> None:
        log.info("object usable again", kind=kind, name=key)
        self.cluster.heal(kind, key)

    def _synced(self) -> None:
        self._known.set()
        self._turn.set()
        log.info(
            "cluster known",
            nodes=len(self.cluster.nodes),
            claims=sum(1 for _ in self.cluster.ledger.claims()),
            seconds=round(time.perf_counter() - self._started, 2),
        )
        if self._own_process:
            gc.unfreeze()  # what an engine before this one has left
        self._keep()

    def _keep(self) -> None:
        """What is there now stays: looking through it at every collection would cost pauses for nothing."""
        if self._own_process:
            gc.collect()
            gc.freeze()

    # --- state of health ---

    def unavailable(self) -> str:
        """Why nothing may be decided now; empty when it may."""
        if not self.watches.synced:
            return "not synced: " + ", ".join(
                f"{progress.kind} ({progress.problem or 'listing'})"
                for progress in self.watches.progress()
                if not progress.synced
            )
        if self.watches.behind() > self._gap:
            return "not watching: " + ", ".join(
                f"{progress.kind} for {progress.behind:.0f} s ({progress.problem})"
                for progress in self.watches.progress()
                if progress.behind > self._gap
            )
        return ""

    def checks(self) -> list[Check]:
        """One per kind that is followed."""
        return [
            Check(
                name=progress.kind,
                ok=progress.synced and progress.behind <= self._gap,
                problem="" if progress.synced and not progress.behind else progress.problem or "listing",
            )
            for progress in self.watches.progress()
        ]

    def readings(self) -> Iterator[Reading]:
        """Values of the metrics that are read from the state."""
        for progress in self.watches.progress():
            yield Reading("objects", progress.objects, progress.kind)
            yield Reading("poisoned_objects", progress.poisoned, progress.kind)
            yield Reading("watch_behind_seconds", progress.behind, progress.kind)
            yield Reading("lists_total", progress.lists, progress.kind)
            yield Reading("watches_total", progress.watches, progress.kind)
            yield Reading("watch_events_total", progress.events, progress.kind)
        yield Reading("size", self.extender.binds_under_way, "binds")
        yield Reading("size", len(self.extender.pods), "pods")
        yield Reading("size", self.events.waiting, "events")
        yield Reading("searches_total", self.decisions.searches)
        yield Reading("violations", len(self.audit.current))
        yield Reading("violations_told_total", self.audit.told)
        yield Reading("events_sent_total", self.events.sent)
        yield Reading("events_dropped_total", self.events.dropped)

    def _tell_violation(self, claim: ResourceClaim, text: str) -> None:
        self.writer.record_event(claim, "Warning", "DeviceHeldTwice", text, action="Auditing")


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Wait until the task has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
