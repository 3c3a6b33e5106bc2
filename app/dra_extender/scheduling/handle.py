"""What the parts of scheduling share, as plugins get framework.Handle from kube-scheduler.

`EventHandler` handles events of watches, and replies to reads and writes of our own. Promises: `apply` changes the
cluster and the records of scheduling. It requeues refused pods when one of them may fit now, and notifies the binds
that wait for the claim or pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.api.resource import DeviceClass, ResourceClaim
from dra_extender.devices.cluster import Cluster, Effects
from dra_extender.placement.learner import PlacementLearner
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.idle import IdleAllocations
from dra_extender.scheduling.ports import Clock, Observer, Ports, Silent
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Signals


class EventHandler(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the records that an event changes."""

    cluster: Cluster
    requeue: RequeueTrigger
    signals: Signals
    idle: IdleAllocations
    resources: ResourceNames
    placement: PlacementLearner | None = None

    def apply(self, event: ClusterEvent) -> Effects:
        """Apply an event of a watch, a list or a reply. Returns the effects on the cluster."""
        effects = self.cluster.apply(event)
        requeue = effects.requeue
        if isinstance(event, Applied):
            requeue |= self._put(event, effects)
        elif event.key.kind == DeviceClass.__name__:
            self.resources.classes_changed()
        elif isinstance(event, Removed) and event.uid is not None:
            self._remove(event.key.kind, event.uid)
        if requeue:
            self.requeue.improved()
        return effects

    def replied(self, obj: ResourceClaim | Pod) -> None:
        self.apply(Applied(obj, "reply"))

    def gone(self, claim: ResourceClaim) -> None:
        """The API server replied that the claim does not exist."""
        self.apply(Removed.of(claim, "reply"))

    def learn_workload(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """Count a pod with these claims in the workload of the placement policy."""
        if self.placement is not None:
            self.placement.learn(pod, claims)

    def _put(self, event: Applied, effects: Effects) -> bool:
        """True when a refused pod may fit now, for a reason that the effects do not have."""
        match event.object:
            case Pod() as pod:
                known = self.cluster.pods.get(pod.metadata.uid)
                if known is not None and self.placement is not None:
                    self.placement.put(known)
                self.signals.notify(pod.metadata.uid)
                # A binding proves a claim that the ledger cannot verify, so other pods may share it.
                ledger = self.cluster.ledger
                return effects.bound and any(map(ledger.is_unverifiable, known_claims(pod, ledger)))
            case ResourceClaim() as claim:
                self._put_claim(claim, event)
            case DeviceClass() as device_class:
                self.resources.class_seen(device_class)
            case Node() as node if self.placement is not None:
                self.placement.put(node)
        return False

    def _put_claim(self, claim: ResourceClaim, event: Applied) -> None:
        uid, watched = claim.metadata.uid, event.source != "reply"
        if watched:
            self.idle.observe(claim, after_gap=event.source == "list")
        elif not self.cluster.ledger.watched_version(uid):
            self.idle.replied(uid)
        self.signals.notify(uid)
        self.requeue.ended(claim.metadata.key)

    def _remove(self, kind: str, uid: str) -> None:
        if kind == Pod.__name__ and self.placement is not None:
            self.placement.drop(uid)
        elif kind == ResourceClaim.__name__:
            self.idle.forget(uid)
        self.signals.notify(uid)


class SystemClock:
    """The time of the event loop on which `monotonic` is called first, and the time of day."""

    def __init__(self) -> None:
        self._time: Callable[[], float] | None = None

    def monotonic(self) -> float:
        """Keeps the clock of the loop: finding the running loop is a system call, and a pod needs the time often."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return self._time()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """How an extender is configured, which time it is, and where it counts."""

    config: SchedulingConfig = SchedulingConfig()
    clock: Clock = msgspec.field(default_factory=SystemClock)
    observer: Observer = msgspec.field(default_factory=Silent)


class Handle(msgspec.Struct, frozen=True):
    """One per service. Parts that act have it; questions have the view only."""

    view: View
    ports: Ports
    event_handler: EventHandler
    deferred: DeferredWork
    requeue: RequeueTrigger
    observer: Observer
    leading: Callable[[], bool]
    """Whether this replica leads, by its own clock. Call it before each write: a process can sleep for longer than its
    lease lasts without noticing.
    """

    async def stored(self, claim: ResourceClaim) -> ResourceClaim | None:
        """The claim as stored now; None when it is gone. Raises ApiError."""
        found = await self.ports.read_claim(claim.metadata.namespace, claim.metadata.name)
        if found is not None and found.metadata.uid == claim.metadata.uid:
            return found
        self.event_handler.gone(claim)
        return None
