"""What all verbs share: the state decisions are made on, the ports, and what is remembered about pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from app.allocation.decisions import Decisions
from app.api.core import Pod
from app.api.features import FeatureGates
from app.api.resource import AllocationResult, ResourceClaim
from app.devices.cluster import Cluster
from app.devices.ledger import HeldError, Hold
from app.scheduling import extended
from app.scheduling.changes import Changes
from app.scheduling.limits import Limits
from app.scheduling.pods import Pods
from app.scheduling.ports import Clock, Observer, Ports
from app.scheduling.reservations import Reservations
from app.scheduling.wakeups import Wakeups

ADOPTED = "dra-extender.dev/adopted"
"""Annotation of claims: the last bind that relied on a reservation it had not made."""


class Quiet(msgspec.Struct, frozen=True):
    """An allocation that has had these consumers (UIDs), at most one, and this mark of the last bind that relied on it,
    since then (monotonic seconds).
    """

    since: float
    consumers: tuple[str, ...]
    adopted: str


@dataclass(slots=True)
class State:
    """One per service. Everything here changes on the event loop only, and never during a decision."""

    cluster: Cluster
    decisions: Decisions
    ports: Ports
    clock: Clock
    observer: Observer
    limits: Limits
    wakeups: Wakeups
    reservations: Reservations
    pods: Pods = field(default_factory=Pods)
    changes: Changes = field(default_factory=Changes)
    running: Callable[[str], str | None] = lambda pod_uid: None
    """The node on which a bind of the pod with this UID is under way."""
    leading: Callable[[], bool] = lambda: True
    """Whether this replica may decide at this very moment; asked before each write, because a process can be asleep
    for longer than its lease lasts without noticing.
    """
    awaited: set[str] = field(default_factory=set)
    """UIDs of claims in flight, and of pods with a bind under way, that pods were refused for."""
    missed: LRUCache[str, bool] = field(default_factory=lambda: LRUCache(100_000))
    """Claims (namespace/name) that pods were refused for because they are not there, or not as they should be."""
    clearing: set[str] = field(default_factory=set)
    """UIDs of claims whose allocation we are taking back."""
    quiet: dict[str, Quiet] = field(default_factory=dict)
    """By claim UID: allocated claims with at most one consumer."""
    unseen: dict[str, float] = field(default_factory=dict)
    """UIDs of claims known by replies only, and since when (monotonic seconds). No watch will tell that one is gone."""
    locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """By claim UID: binds write to a shared claim one after the other."""
    _class_names: dict[str, str] | None = None
    _provided: set[str] = field(default_factory=set)
    """Extended resources that classes stand or once stood behind."""
    _asked: LRUCache[str, float] = field(default_factory=lambda: LRUCache(10_000))
    """Other extended resources, and since when pods ask for them (monotonic seconds)."""

    @property
    def features(self) -> FeatureGates:
        return self.cluster.features

    # --- claims -----------------------------------------------------------------------------------------------------

    def learn(self, claim: ResourceClaim) -> None:
        """The reply to a read or write of ours: newer than what the watch brought, perhaps."""
        self.observe(claim, watched=False)

    def observe(self, claim: ResourceClaim, *, watched: bool) -> None:
        """A version of a claim, from the watch or from a reply.

        One that is seen for the first time helps nobody but the pods that miss it; it must not wake all others.
        """
        meta = claim.metadata
        new = self.cluster.ledger.by_uid(meta.uid) is None
        improved = self.cluster.apply(claim) if watched else self.cluster.learn(claim)
        if watched or self.cluster.ledger.seen(meta.uid):
            self.unseen.pop(meta.uid, None)
        else:
            self.unseen.setdefault(meta.uid, self.clock.monotonic())
        missed = self.missed.pop(meta.key, False)
        if missed or (improved and not new):
            self.wakeups.improved()
        self.changes.notify(meta.uid)

    def gone(self, claim: ResourceClaim) -> None:
        """A read or write of ours found the claim gone."""
        meta = claim.metadata
        self.unseen.pop(meta.uid, None)
        if self.cluster.ledger.forget(meta.namespace, meta.name, meta.uid):
            self.wakeups.improved()
        self.changes.notify(meta.uid)

    def note_allocation(self, claim: ResourceClaim) -> None:
        """A version of a claim from the watch: keep track of allocations that may come to be of no use."""
        uid, consumers = claim.metadata.uid, tuple(entry.uid for entry in claim.status.reserved_for)
        adopted = claim.metadata.annotations.get(ADOPTED, "")
        if claim.allocation is None or len(consumers) > 1:
            self.quiet.pop(uid, None)
            return
        known = self.quiet.get(uid)
        if known is None or (known.consumers, known.adopted) != (consumers, adopted):
            self.quiet[uid] = Quiet(since=self.clock.monotonic(), consumers=consumers, adopted=adopted)

    def is_settled(self, claim: ResourceClaim) -> bool:
        """Whether nobody can be binding the claim's only consumer any more, not even another replica."""
        known = self.quiet.get(claim.metadata.uid)
        if known is None:
            return False
        return not known.consumers or self.clock.monotonic() - known.since >= self.limits.settled_seconds

    def is_doubtful(self, claim: ResourceClaim) -> bool:
        """Whether it cannot be told now if the allocation gives something away twice. One that a pod runs with has been
        verified before.
        """
        if not self.cluster.ledger.is_unverifiable(claim):
            return False
        pods = [self.pods.get(entry.uid) for entry in claim.status.reserved_for]
        return not any(pod is not None and pod.spec.node_name for pod in pods)

    def in_flight(self, claim: ResourceClaim) -> bool:
        """Whether the claim is about to be allocated or deallocated. Who asks is woken when that has ended."""
        uid = claim.metadata.uid
        if uid in self.clearing:
            return True
        if claim.allocation is not None or self.cluster.ledger.held(uid) is None:
            return False
        self.awaited.add(uid)
        return True

    def is_being_bound(self, claim: ResourceClaim) -> bool:
        """Whether a bind of ours is about to rely on the claim, or to take it back."""
        for consumer in claim.status.reserved_for:
            pod = self.pods.get(consumer.uid)
            if self.running(consumer.uid) is not None and not (pod is not None and pod.spec.node_name):
                return True
        return False

    def hold(self, claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult], owner: str) -> list[Hold]:
        """Hold all or none. Raises HeldError."""
        holds: list[Hold] = []
        try:
            for claim, allocation in zip(claims, allocations, strict=True):
                holds.append(self.cluster.ledger.hold(claim, allocation, owner=owner))
        except HeldError:
            for hold in holds:
                self.cluster.ledger.release(hold)
            raise
        return holds

    def confirm(self, hold: Hold, written: ResourceClaim) -> None:
        """Our write of the held allocation is stored."""
        self.cluster.ledger.confirm(hold, written)
        self._decided(hold)

    def release(self, hold: Hold) -> None:
        """The held allocation will not be written, or has been taken back."""
        if self.cluster.ledger.release(hold):
            self.wakeups.improved()
        self._decided(hold)

    def _decided(self, hold: Hold) -> None:
        self.ended(hold.claim_uid)
        self.changes.notify(hold.claim_uid)

    def ended(self, uid: str) -> None:
        """What pods were refused for while it was under way has ended."""
        if uid in self.awaited:
            self.awaited.discard(uid)
            self.wakeups.improved()

    # --- extended resources -----------------------------------------------------------------------------------------

    def classes_changed(self) -> None:
        self._class_names = None

    def wanted(self, pod: Pod) -> extended.Wanted | None:
        """The extended resources of the pod that devices may provide; None for almost all pods."""
        if not self.features.DRAExtendedResource:
            return None
        if self._class_names is None:
            self._class_names = extended.class_names(self.cluster.classes.values())
            self._provided.update(self._class_names)
        return extended.wanted(pod, self._class_names, self.cluster.classes)

    def is_orphaned(self, pod: Pod, node: str) -> bool:
        """Whether the pod would be bound without the devices it asks for by the name of a resource: the class behind
        the name has gone, has not come yet, or cannot be read. A name that no class was ever seen for belongs to
        somebody else once it has been known for longer than we go on without a watch.
        """
        if not self.features.DRAExtendedResource or self.wanted(pod) is not None:
            return False
        missing = extended.unprovided(pod, self.cluster.nodes.get(node)) if pod.spec.containers else ()
        if missing and any(name.startswith("DeviceClass ") for name in self.cluster.unreadable):
            return True
        now = self.clock.monotonic()
        return any(
            name in self._provided or now - self._asked.setdefault(name, now) < self.limits.doubt_seconds
            for name in missing
        )

    def uses_devices(self, pod: Pod) -> bool:
        """Whether there is anything to decide for the pod."""
        return bool(pod.spec.resource_claims) or self.wanted(pod) is not None
