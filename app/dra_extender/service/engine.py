"""The state, the watches, the extender and the writer of a service.

`Engine` promises: the controllers (requeue, clear, preempt, nominate), or the record of shadow mode, run exactly while
this replica leads and the watches are synced; the engine evaluates every node before the first verb call; the audit
starts after the sync. In shadow mode nothing is written but the lease.

`WatchHealth` promises: the verbs decide nothing before the first list of every kind, or while the watch of a kind has
not worked for longer than the setting `watch_gap`. A watch that always fails on the same event does not work.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.events import Applied, ClusterEvent, Undecodable
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.problems import Check
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.reflector import Reflector, Watches
from dra_extender.kube.resources import Served
from dra_extender.kube.writer import RequeueClaim, Writer
from dra_extender.placement.learner import PlacementLearner
from dra_extender.scheduling.claims import all_claim_names
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.handle import Runtime
from dra_extender.scheduling.outcomes import Reading
from dra_extender.scheduling.ports import Observer
from dra_extender.scheduling.turns import TURN_WORK, Turns, run
from dra_extender.scheduling.warmup import warm_up
from dra_extender.service.audit import AllocationAudit
from dra_extender.service.devicemetrics import DeviceMetrics
from dra_extender.service.diagnoses import Diagnoses
from dra_extender.service.process import ProcessMemory
from dra_extender.service.provisioning import ProvisioningRequests
from dra_extender.service.settings import Settings
from dra_extender.service.shadow import ShadowRecord
from dra_extender.unexpected import continuing
from dra_extender.workers.pool import WorkerPool

log = structlog.get_logger(__name__)

_WARM_PERIOD: Final = 30.0
"""Seconds between two evaluations of changed nodes on a standby."""


@dataclass(slots=True, eq=False)
class WatchHealth:
    """Whether the watches of all kinds work. A kind fails after `gap` seconds without a working watch."""

    _kinds: Sequence[Reflector[Any]]
    _gap: float

    def unavailable(self) -> str:
        """Why the verbs must not decide now, with the kinds concerned; empty when they may."""
        kinds = [kind for kind in self._kinds if not kind.resource.optional]
        listing = [f"{kind.resource.kind} ({kind.problem or 'listing'})" for kind in kinds if not kind.synced]
        if listing:
            return f"not synced: {', '.join(listing)}"
        late = [kind for kind in kinds if kind.behind > self._gap]
        behind = [f"{kind.resource.kind} for {kind.behind:.0f} s ({kind.problem})" for kind in late]
        return f"not watching: {', '.join(behind)}" if behind else ""

    def checks(self) -> list[Check]:
        """One per kind. A gap is reported at once; the check fails when the gap is too long."""
        return [
            Check(
                name=kind.resource.kind,
                ok=kind.resource.optional or (kind.synced and kind.behind <= self._gap),
                problem="" if kind.synced and not kind.behind else kind.problem or "listing",
            )
            for kind in self._kinds
        ]

    def readings(self) -> Iterator[Reading]:
        for kind in self._kinds:
            label = (kind.resource.kind,)
            yield Reading("objects", len(kind.known), label)
            yield Reading("undecodable_objects", kind.known.undecodable, label)
            yield Reading("watch_gap_seconds", kind.behind, label)
            yield Reading("lists_total", kind.lists, label)


class Engine:
    """One per version of the resource API that the API server serves."""

    def __init__(
        self, client: KubeClient, served: Served, settings: Settings, observer: Observer, memory: ProcessMemory
    ) -> None:
        self.cluster = Cluster(settings.features(served.server_version))
        self.events = EventRecorder(client, settings.replica)
        self.writer = Writer(client, self.events, RequeueClaim(settings.namespace, settings.requeue_claim))
        self.decisions = Decisions(self.cluster, step_budget=settings.step_budget, share_ids=lambda: str(uuid.uuid4()))
        self.workers = WorkerPool(settings.worker_limits)
        self.extender = Extender(
            self.cluster,
            self.decisions,
            self.writer,
            runtime=Runtime(config=settings.config, observer=observer),
            placement=PlacementLearner(self.cluster, settings.strategy, self.decisions.filters),
            workers=self.workers,
        )
        self.strategy = settings.strategy if settings.mode == "shadow" else None  # of shadow mode
        self.shadow: ShadowRecord | None = None
        violations, reader = self.cluster.ledger.parts_of_violations, settings.config.reader
        self.audit = AllocationAudit(violations, self.cluster.claim, self._report_violation, reader)
        view, refused = self.extender.view, lambda: self.extender.requeue.pods
        self.provisioning = ProvisioningRequests(client, view, lambda: self._leading)
        self._provisions = settings.provisioning_requests
        record = self.writer.record_event
        self.diagnoses = Diagnoses(view, refused, lambda about, reason, note: record(about, "Warning", reason, note))
        if self._provisions:
            self.diagnoses.observe = self.provisioning.diagnosed
        self.device_metrics = DeviceMetrics(self.extender.view, self.diagnoses.pending, self.diagnoses.rule)
        self._diagnose = settings.diagnose and settings.writes
        self._known = asyncio.Event()
        self.warming = "not warm: evaluating nodes and pods"
        """Why the first verb calls would be slow; empty after the warm-up."""
        budgets = settings.preemption != "off"
        self.watches = Watches(
            client,
            served,
            self.apply,
            budgets=budgets,
            on_synced=self._synced,
            continuity=self.cluster.continuity,
            set_aside=self.extender.set_aside.object_reason,
        )
        self.watch_health = WatchHealth(self.watches.reflectors, settings.watch_gap)
        self._memory = memory
        self._started = time.perf_counter()
        self._leading = False
        self._leadership_changed = asyncio.Event()
        self.extender.restored.clear()

    def apply(self, event: ClusterEvent) -> None:
        """Apply an event of a watch. Report undecodable objects, and devices that have a second owner."""
        effects = self.extender.apply(event)
        kind, name = event.key.kind, event.key.name
        if isinstance(event, Undecodable):
            partial = event.partial
            known = {} if partial is None else {"devices": len(partial.results), "all_devices_known": partial.complete}
            log.warning("object cannot be decoded, left out", kind=kind, name=name, problem=event.problem, **known)
        elif effects.recovered:
            log.info("object can be decoded again, or is gone", kind=kind, name=name)
        if self.shadow is not None:
            self.shadow.observe(event)
        if self._known.is_set() and self._leading and isinstance(event, Applied) and event.source == "watch":
            for claim in self._claims_of(event.object):
                self.audit.notice(self.cluster.ledger.owned_twice(claim), self.extender.view.is_being_bound)

    def _claims_of(self, stored: object) -> Sequence[ResourceClaim]:
        """The claim itself, or the claims of a bound pod."""
        if isinstance(stored, Pod) and stored.spec.node_name:
            namespace, ledger = stored.metadata.namespace, self.cluster.ledger
            return [claim for name in all_claim_names(stored) if (claim := ledger.get(namespace, name)) is not None]
        return (stored,) if isinstance(stored, ResourceClaim) else ()

    def jobs(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The tasks of the engine. Each runs until cancelled."""
        yield self.watches.run()
        yield self.events.run()
        yield self._lead()
        yield self._warm_up()
        yield self._once_known(self.audit.run)
        yield self._once_known(self.device_metrics.run)
        if self._diagnose:
            yield self.diagnoses.run()
        if self._provisions:
            yield self._once_known(self.provisioning.run)
        yield self._memory.trim()

    def lead(self, leading: bool) -> None:
        self._leading = leading
        self._leadership_changed.set()

    async def drain(self, seconds: float) -> None:
        """Wait for running binds, for at most `seconds`, then cancel them without rollback. Frees the caches."""
        left = await self.extender.drain(seconds)
        await self.workers.close()
        self.decisions.forget()
        if left:
            log.warning("binds did not end in time", binds=left)

    def readings(self) -> Iterator[Reading]:
        """The metrics that are read at a scrape."""
        yield from self.watch_health.readings()
        extender = self.extender
        values: dict[str, float] = {
            "unreadable_claims_incomplete": self.cluster.undecodable.incomplete,
            "binds_unfinished": len(extender.pending_rollbacks),
            "preemption_nominations": len(extender.nominations),
            "preemption_victims_stuck": extender.preemption.stuck,
            "nominated_ahead": len(extender.early_nomination.nominations),
            "allocation_searches_total": self.decisions.searches,
            "worker_questions_open": len(extender.deferred),
            "violations": len(self.audit.current),
            "violations_reported_total": self.audit.reported,
            "events_dropped_total": self.events.dropped,
        }
        yield from (Reading(name, value) for name, value in values.items())
        yield from self.device_metrics.readings
        for found in self.shadow.settled().rules if self.shadow is not None else ():
            yield Reading("shadow_pods_total", found.pods, (found.rule,))

    async def _lead(self) -> None:
        """Run the controllers or record while this replica leads and the watches are synced. Raises what they raise."""
        work: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                await self._leadership_changed.wait()
                self._leadership_changed.clear()
                if self._leading and self.watches.synced and work is None:
                    self.shadow = ShadowRecord(self.extender.view, self.strategy) if self.strategy is not None else None
                    if self.shadow is not None:
                        self.extender.restored.set()
                    work = group.create_task((self.shadow or self.extender).run(), name="scheduling")
                elif not self._leading and work is not None:
                    self.extender.restored.clear()
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
                    work = self.shadow = None

    async def _warm_up(self) -> None:
        """Evaluate every node and running pod, and fill the caches: the first filter call would do it for thousands of
        nodes in one turn. A standby repeats it, so it can lead at any time.
        """
        await self._known.wait()
        await self._evaluate()
        self._memory.freeze()
        self.warming = ""
        while True:
            await asyncio.sleep(_WARM_PERIOD)
            if not self._leading:
                await self._evaluate()

    async def _evaluate(self) -> None:
        await continuing("inventory", run(self._evaluating()))  # decisions evaluate the other nodes on demand

    def _evaluating(self) -> Turns[None]:
        done = 0
        for work in self.cluster.inventory.nodes.refresh_all():
            done += work
            if done >= TURN_WORK:
                done = 0
                yield
        yield from self.extender.learn_running_pods()  # a pod may take a portion of work
        yield from warm_up(self.extender.view)

    async def _once_known(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the job after the first list of every kind: earlier results would be wrong."""
        await self._known.wait()
        await job()

    def _synced(self) -> None:
        self._known.set()
        self._leadership_changed.set()
        log.info(
            "watches synced",
            nodes=len(self.cluster.nodes),
            claims=sum(1 for _ in self.cluster.ledger.claims()),
            seconds=round(time.perf_counter() - self._started, 2),
        )
        self._memory.freeze()

    def _report_violation(self, claim: ResourceClaim, text: str) -> None:
        if self._leading and self.strategy is None:
            self.writer.record_event(claim, "Warning", "DeviceHeldTwice", text, action="Auditing")
