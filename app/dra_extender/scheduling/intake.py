"""What is learned of the cluster: from the watches, and from the replies to reads and writes of our own.

Promises: the one writer of the cluster (but for holds, which binds have), of the pods, and of what is remembered about
claims. Every change that may let
a refused pod fit is an improvement, whatever brought it; who waits for a claim or a pod is notified of each version.
"""

from __future__ import annotations

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.partial import PartialAllocation
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import DeviceClass, ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.cluster import Watched as ClusterWatched
from dra_extender.placement.placement import Placement
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.disruptionbudgets import DisruptionBudgets
from dra_extender.scheduling.idle import IdleAllocations
from dra_extender.scheduling.pods import Pods
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.resourcenames import ResourceNames
from dra_extender.scheduling.signals import Signals
from dra_extender.scheduling.unseen import Unseen

Watched = ClusterWatched | Pod | PodDisruptionBudget


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    cluster: Cluster
    pods: Pods
    requeue: RequeueTrigger
    signals: Signals
    idle: IdleAllocations
    unseen: Unseen
    resources: ResourceNames
    budgets: DisruptionBudgets
    placement: Placement | None = None

    # --- from the watches -------------------------------------------------------------------------------------------

    def apply(self, obj: Watched, *, after_gap: bool = False) -> None:
        """A new or changed object. `after_gap`: the watch may have missed versions of it before this one."""
        if isinstance(obj, Pod):
            before = self.pods.get(obj.metadata.uid)
            self.pods.apply(obj)
            self._place(obj)
            self.signals.notify(obj.metadata.uid)
            if obj.spec.node_name and (before is None or not before.spec.node_name) and self._ends_doubt(obj):
                self.requeue.improved()
            return
        if isinstance(obj, ResourceClaim):
            self._observe(obj, watched=True, after_gap=after_gap)
            self.idle.observe(obj, after_gap=after_gap)
            return
        if isinstance(obj, PodDisruptionBudget):
            self.budgets.apply(obj)
            return
        improved = self.cluster.apply(obj)
        if isinstance(obj, Node) and self.placement is not None:
            self.placement.put(obj)
        if isinstance(obj, DeviceClass):
            self.resources.class_seen(obj)
        if improved:
            self.requeue.improved()

    def remove(self, obj: Watched) -> None:
        """A deleted object."""
        if isinstance(obj, Pod):
            self.pods.remove(obj)
            if self.placement is not None:
                self.placement.drop(obj)
            self.signals.notify(obj.metadata.uid)
            return
        if isinstance(obj, PodDisruptionBudget):
            self.budgets.remove(obj)
            return
        improved = self.cluster.remove(obj)
        if isinstance(obj, DeviceClass):
            self.resources.classes_changed()
        if isinstance(obj, ResourceClaim):
            self.idle.strike(obj.metadata.uid)
            self.unseen.forget(obj.metadata.uid)
            self.signals.notify(obj.metadata.uid)
        if improved:
            self.requeue.improved()

    def poison(self, kind: str, key: str, problem: str, partial: PartialAllocation | None = None) -> None:
        """An object (`namespace/name` or `name`) that cannot be read. `partial`: what it holds, if it is a claim."""
        improved = self.cluster.poison(kind, key, problem, partial)
        if kind == DeviceClass.__name__:
            self.resources.classes_changed()
        if improved:
            self.requeue.improved()

    def heal(self, kind: str, key: str) -> None:
        """An object that could not be read can be again, or is gone."""
        if self.cluster.heal(kind, key):
            self.requeue.improved()

    def _ends_doubt(self, pod: Pod) -> bool:
        """True when the pod, which is bound now, shares a claim of which it cannot be told whether it gives something
        away twice: a pod runs with it, so that was verified, and others may join it.
        """
        ledger = self.cluster.ledger
        return any(map(ledger.is_unverifiable, known_claims(pod, ledger)))

    def _place(self, pod: Pod) -> None:
        """The newest version of the pod counts on its node."""
        if self.placement is not None and (known := self.pods.get(pod.metadata.uid)) is not None:
            self.placement.put(known)

    # --- from replies -----------------------------------------------------------------------------------------------

    def learn(self, claim: ResourceClaim) -> None:
        """The reply to a read or write of ours: newer than what the watch brought, perhaps."""
        self._observe(claim)

    def learn_pod(self, pod: Pod) -> None:
        """The reply to a read of ours; the watch may be ahead of it."""
        self.pods.learn(pod)
        self._place(pod)

    def gone(self, claim: ResourceClaim) -> None:
        """A read or write of ours found the claim gone."""
        meta = claim.metadata
        self.unseen.forget(meta.uid)
        if self.cluster.ledger.forget(meta.namespace, meta.name, meta.uid):
            self.requeue.improved()
        self.signals.notify(meta.uid)

    def _observe(self, claim: ResourceClaim, *, watched: bool = False, after_gap: bool = False) -> None:
        """A claim that is seen for the first time helps only the pods that miss it; it must not wake all others."""
        meta = claim.metadata
        new = self.cluster.ledger.by_uid(meta.uid) is None
        improved = self.cluster.apply(claim, after_gap=after_gap) if watched else self.cluster.learn(claim)
        if watched or self.cluster.ledger.seen(meta.uid):
            self.unseen.forget(meta.uid)
        else:
            self.unseen.replied(meta.uid)
        missed = self.requeue.appeared(meta.key)
        if missed or (improved and not new):
            self.requeue.improved()
        self.signals.notify(meta.uid)
