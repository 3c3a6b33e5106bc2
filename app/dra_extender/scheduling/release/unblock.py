"""Allocations that keep a pod from running anywhere are cleared, as kube-scheduler's PostFilter would do.

A claim that was allocated for one node and is used by nobody else would keep its pod pending for ever when that node is
full; so would one that is being deleted, because it stays as long as it is reserved for the pod. So when a filter
refused all nodes, and allocated claims were the reason on at least one, one of those claims is cleared after a short
while; the change of the claim wakes the pod.

Guards: the call was no probe of a nominated node, the scheduler is one of ours, as far as ours are known, and has
reported the pod as unschedulable, no later filter found a node, no bind of the pod is under way here or, as far as time
can tell, in another replica, and the claim is unchanged and reserved for nobody but this pod, or only for pods that
wait like this one.

Rules: Kubernetes 1.36, PostFilter of pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling import readiness
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.view import View


class _Candidate(msgspec.Struct, frozen=True):
    claims: tuple[ResourceClaim, ...]
    since: float


class Unblocker:
    """Candidates by pod UID, each until its pod fits or is gone, however long that takes: a refusal that is remembered
    is not offered again. `work` is called about once a second.
    """

    def __init__(self, view: View, clearer: Clearer) -> None:
        self._view = view
        self._clearer = clearer
        self._candidates: LRUCache[str, _Candidate] = LRUCache(view.config.remembered_pods)
        self._leftovers: dict[str, ResourceClaim] = {}

    def offer(self, pod: Pod, names: Sequence[str], stuck: tuple[ResourceClaim, ...]) -> None:
        """A filter of the pod has refused all of `names`; `stuck` are allocated claims that were in the way."""
        probe = bool(pod.status.nominated_node_name) and tuple(names) == (pod.status.nominated_node_name,)
        if not self._view.config.deallocate or probe or not self._view.config.may_clear_for(pod.spec.scheduler_name):
            return
        if not stuck:
            self.withdraw(pod.metadata.uid)
            return
        known = self._candidates.get(pod.metadata.uid)
        since = known.since if known is not None and known.claims == stuck else self._view.clock.monotonic()
        self._candidates[pod.metadata.uid] = _Candidate(claims=stuck, since=since)

    def withdraw(self, pod_uid: str) -> None:
        """The pod fits somewhere, or is gone."""
        self._candidates.pop(pod_uid, None)

    def offer_leftover(self, claim: ResourceClaim) -> None:
        """A claim for extended resources of an earlier attempt, which the pod's next attempt cannot use."""
        if self._view.config.deallocate:
            self._leftovers[claim.metadata.uid] = claim

    async def work(self) -> None:
        """Clear what is due: one claim per pod."""
        for uid in list(self._candidates):
            await self._clear_for(uid)
        for uid, claim in list(self._leftovers.items()):
            owner = claim.metadata.controller
            if owner is not None and owner.uid not in self._view.binding:
                await self._clearer.discard(self._view.ledger.by_uid(uid) or claim)
            self._leftovers.pop(uid, None)

    async def _clear_for(self, pod_uid: str) -> None:
        view = self._view
        candidate = self._candidates.get(pod_uid)
        if candidate is None:
            return
        age = view.clock.monotonic() - candidate.since
        pod = view.pods.get(pod_uid)
        if pod_uid in view.binding:
            return
        if view.pods.leaving(pod_uid) or (pod is not None and pod.spec.node_name):
            self.withdraw(pod_uid)
        elif age >= view.config.deallocate_seconds and pod is not None and reported_unschedulable(pod):
            for claim in candidate.claims:
                if self._free_to_clear(claim, pod_uid, age):
                    self.withdraw(pod_uid)
                    note = "the devices are released: the claim's pod fits elsewhere"
                    await self._clearer.clear(claim, "in_the_way", note)
                    return

    def _free_to_clear(self, claim: ResourceClaim, pod_uid: str, age: float) -> bool:
        """Whether the claim is as it was judged, and nobody but the pod counts on it."""
        view = self._view
        now = view.ledger.by_uid(claim.metadata.uid)
        if now is None or now.metadata.resource_version != claim.metadata.resource_version or view.in_flight(now):
            return False
        if not self._clearer.may_try(now):
            return False
        consumers = [consumer.uid for consumer in now.status.reserved_for]
        if all(uid == pod_uid for uid in consumers):
            return view.settled(now)
        # A device in two claims keeps all pods of both from running: those that no pod runs with give way. And pods
        # of which each was reserved for before a crash, on a node where none of them fits, would wait for each other.
        return age >= view.config.settled_seconds and self._is_useless(now, consumers)

    def _is_useless(self, claim: ResourceClaim, consumers: Sequence[str]) -> bool:
        """Whether no consumer is bound or about to be, and none will be: a device of the claim is in another one too,
        or our schedulers found no node for any of them. Pods of schedulers that are not ours count as about to be.
        """
        view = self._view
        pods = [view.pods.get(uid) for uid in consumers]
        may_clear_for = view.config.may_clear_for
        waiting = all(
            pod is not None and not pod.spec.node_name and may_clear_for(pod.spec.scheduler_name) for pod in pods
        )
        if not waiting or not view.binding.keys().isdisjoint(consumers):
            return False
        return bool(view.ledger.rivals(claim)) or self._fits_nobody(claim, pods)

    def _fits_nobody(self, claim: ResourceClaim, pods: Sequence[Pod | None]) -> bool:
        """Devices that may still become ready are waited for by binds of which no condition of a pod tells."""
        view = self._view
        config = view.config
        if readiness.awaited(claim) and not readiness.unavailable(claim, view.clock.wall(), config.binding_seconds):
            return False
        return all(
            pod is not None and pod.spec.scheduler_name in config.scheduler_names and reported_unschedulable(pod)
            for pod in pods
        )


def reported_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler has ended an attempt without a node."""
    return any(
        condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )
