"""Releases unused allocations: crashes leave some behind, and others keep a pod from all nodes.

`Sweeper`: the claim controller deallocates a claim when its last consumer goes, but not a claim that never had a
consumer. A claim that is reserved for a pod that is never bound keeps its devices as long as the pod exists.

Promises: costs nothing while bound pods use the claims, and little per turn. A claim is cleared only if, for the whole
time, it was idle or reserved for one unbound pod, and filter offered no node to its pods. The write requires the
version that the decision was made on. A filter call that offers no node does not keep a claim: otherwise pods that hold
each other's devices would wait for ever. If the settings name the schedulers that call this service, claims of other
schedulers' pods are never cleared.

`Unblocker`, as kube-scheduler's PostFilter: a claim that is allocated on a full node keeps its pod pending for ever,
and so does a claim that is being deleted while it is reserved for the pod. So when filter refused all nodes, on at
least one of them because of allocated claims, one of these claims is cleared after `deallocate_seconds`. The change of
the claim requeues the pod.

Guards: the call was not about the nominated node only; the pod's scheduler calls this service, if the settings name the
schedulers, and has reported the pod as unschedulable; no later filter found a node; no bind of the pod is in progress
here or, judging by time, in another replica; the status of the claim is unchanged, and it is reserved for this pod only
or for pods that all wait like this one, listed one by one or as a PodGroup; of a gang, without a plan.

Rules: Kubernetes 1.36, PostFilter of pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence, Set

import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, is_passing
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.scheduling import readiness
from dra_extender.scheduling.claims import claim_names
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.idle import IdleAllocations
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

GRACE_SECONDS = 60.0
"""Added to the time that another scheduler may take to bind a pod after reserving its claims."""

UNSEEN_SECONDS = 15.0
"""The sweeper reads a claim that the watch has not shown within this time."""

NAMES_PER_TURN = 2_000
"""How many pods and names of claims are looked at in one turn."""


class Sweeper:
    """`start` when schedulers begin to call this replica, then `work` every few seconds."""

    def __init__(self, handle: Handle, clearer: Clearer, idle: IdleAllocations) -> None:
        self._handle, self._view = handle, handle.view
        self._clearer = clearer
        self._idle = idle
        self._offered: LRUCache[str, float] = LRUCache(100_000)
        self._started = 0.0
        self._used_by_others: defaultdict[str, set[str]] | None = None
        """By namespace: pods of other schedulers, and the claims they name. None: this round has not looked."""

    def start(self) -> None:
        """Claims count as idle from now on, because this replica does not know which nodes another replica offered."""
        self._started = self._view.clock.monotonic()

    def offered(self, claim_uid: str) -> None:
        """Filter has offered a node to a pod of the claim: the scheduler may bind it."""
        self._offered[claim_uid] = self._view.clock.monotonic()

    def pod_applied(self, pod: Pod) -> None:
        """A new or changed pod: a round that has looked at the pods has to know it."""
        view, others, uid = self._view, self._used_by_others, pod.metadata.uid
        if others is None or view.config.may_clear_for(pod.spec.scheduler_name) or view.pods.is_terminating(uid):
            return
        others[pod.metadata.namespace].update(claim_names(pod), (uid,))

    async def work(self) -> None:
        """Clear the claims that have been unused for `sweep_after`."""
        await self._read_unseen()
        least = self._view.config.sweep_after
        if least <= 0:
            return
        now = self._view.clock.monotonic()
        try:
            for uid, entry in self._idle.entries():
                seconds = now - max(entry.since, self._started, self._offered.get(uid, entry.since))
                if seconds >= least:
                    await self._sweep(uid, seconds)
                    await asyncio.sleep(0)
        finally:
            self._used_by_others = None

    async def _read_unseen(self) -> None:
        """Read the claims that only a reply has shown: they may be gone. Stop when the API server does not answer."""
        now, unseen = self._view.clock.monotonic(), self._idle.unseen
        for uid in [uid for uid, since in unseen.items() if now - since >= UNSEEN_SECONDS]:
            claim = self._view.ledger.by_uid(uid)
            if claim is None:
                self._idle.forget(uid)
                continue
            try:
                found = await self._handle.stored(claim)
            except ApiError as error:
                log.info("a claim that no watch has shown was not read", claim=claim.metadata.key, error=repr(error))
                if is_passing(error):
                    return
                found = claim
            if found is not None and uid in unseen:
                unseen[uid] = self._view.clock.monotonic()

    async def _sweep(self, uid: str, seconds: float) -> None:
        """Clear the allocation if it is unused. `seconds`: how long it has been unchanged and without an offer."""
        view = self._view
        claim = view.ledger.by_uid(uid)
        if claim is None or claim.allocation is None:
            self._idle.forget(uid)
            return
        if view.in_flight(claim) or not self._clearer.may_try(claim):
            return
        if not claim.status.reserved_for:
            if claim.metadata.deletion_timestamp:
                return  # the claim controller deallocates it
            if await self._is_used_by_others(claim):
                self.offered(uid)
                return
            await self._clearer.clear(claim, "idle", "the devices are released: no pod uses the claim")
            return
        consumer = claim.status.reserved_for[0]
        pod = view.pods.get(consumer.uid) if consumer.resource == "pods" else None
        if pod is not None and pod.spec.node_name:
            self._idle.forget(uid)
        elif pod is not None and self._abandoned(claim, pod, seconds):
            note = "the devices are released: the claim's pod was not bound"
            await self._clearer.clear(claim, "abandoned", note)

    def _abandoned(self, claim: ResourceClaim, pod: Pod, seconds: float) -> bool:
        """The claim controller deallocates the claims of pods that are gone or finished."""
        view = self._view
        if view.pods.is_terminating(pod.metadata.uid) or pod.metadata.uid in view.binding:
            return False
        if not view.config.may_clear_for(pod.spec.scheduler_name):
            return False
        if view.config.scheduler_names and not readiness.awaited(claim):
            return view.is_abandoned(claim)
        return seconds >= view.config.binding_conditions_timeout + GRACE_SECONDS

    async def _is_used_by_others(self, claim: ResourceClaim) -> bool:
        """True when a pod of a scheduler that does not call this service uses the claim."""
        if self._used_by_others is None:
            self._used_by_others, looked = defaultdict(set), 0
            for pod in self._view.pods if self._view.config.scheduler_names else ():
                looked += 1 + len(pod.spec.resource_claims)
                if looked >= NAMES_PER_TURN:
                    looked = 0
                    await asyncio.sleep(0)
                self.pod_applied(pod)
        meta = claim.metadata
        used = self._used_by_others.get(meta.namespace, ())
        return meta.name in used or (meta.controller is not None and meta.controller.uid in used)


_Candidate = tuple[tuple[ResourceClaim, ...], float]
"""The claims that keep a pod from nodes, and since when (monotonic seconds)."""


class Unblocker:
    """Candidates by pod UID, each until its pod fits or is gone, because filter does not repeat a remembered refusal.
    Call `work` about once a second.
    """

    def __init__(self, view: View, clearer: Clearer) -> None:
        self._view = view
        self._clearer = clearer
        self._candidates: LRUCache[str, _Candidate] = LRUCache(view.config.remembered_pods)
        self._leftovers: dict[str, ResourceClaim] = {}
        self._unused: dict[str, bool] = {}
        """By claim UID: whether none of its pods is bound or will be, as far as this round has looked."""
        self._names: dict[str, Set[str]] = {}
        """The claims of the pods of groups, by UID of the pod, as far as this round has looked."""

    def refused(self, pod: Pod, names: Sequence[str], blocking: tuple[ResourceClaim, ...]) -> None:
        """Filter has refused all of `names`; `blocking`: the allocated claims that were a reason."""
        probe = bool(pod.status.nominated_node_name) and tuple(names) == (pod.status.nominated_node_name,)
        if not self._view.config.deallocate or probe or not self._view.config.may_clear_for(pod.spec.scheduler_name):
            return
        if not blocking:
            self.forget(pod.metadata.uid)
            return
        known = self._candidates.get(pod.metadata.uid)
        same = known is not None and _statuses(known[0]) == _statuses(blocking)
        since = known[1] if known is not None and same else self._view.clock.monotonic()
        self._candidates[pod.metadata.uid] = blocking, since

    def forget(self, pod_uid: str) -> None:
        """The pod fits somewhere, or is gone."""
        self._candidates.pop(pod_uid, None)

    def add_leftover(self, claim: ResourceClaim) -> None:
        """A claim for extended resources that the pod's next attempt cannot use."""
        if self._view.config.deallocate:
            self._leftovers[claim.metadata.uid] = claim

    async def work(self) -> None:
        """Clear at most one claim per pod. Looks once at the pods of a claim, at one claim per turn, and at
        `NAMES_PER_TURN` pods.
        """
        self._unused, self._names = {}, {}
        for number, (uid, candidate) in enumerate(list(self._candidates.items()), 1):
            await self._clear_for(uid, candidate)
            if number % NAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        for uid, claim in list(self._leftovers.items()):
            owner = claim.metadata.controller
            if owner is not None and owner.uid not in self._view.binding:
                await self._clearer.discard(self._view.ledger.by_uid(uid) or claim)
            self._leftovers.pop(uid, None)

    async def _clear_for(self, pod_uid: str, candidate: _Candidate) -> None:
        view = self._view
        age = view.clock.monotonic() - candidate[1]
        pod = view.pods.get(pod_uid)
        if pod_uid in view.binding or pod_uid not in self._candidates:
            return
        if view.pods.is_terminating(pod_uid) or (pod is not None and pod.spec.node_name):
            self.forget(pod_uid)
        elif age >= view.config.deallocate_seconds and pod is not None and reported_unschedulable(pod):
            for known in candidate[0]:
                await asyncio.sleep(0)
                if self._candidates.get(pod_uid) is not candidate:
                    return
                claim = view.ledger.by_uid(known.metadata.uid)
                if claim is not None and claim.status == known.status and self._free_to_clear(claim, pod_uid, age):
                    self.forget(pod_uid)
                    note = "the devices are released: the claim's pod fits elsewhere"
                    await self._clearer.clear(claim, "in_the_way", note)
                    return

    def _free_to_clear(self, claim: ResourceClaim, pod_uid: str, age: float) -> bool:
        """True when no other pod relies on the claim."""
        view = self._view
        if view.in_flight(claim) or not self._clearer.may_try(claim):
            return False
        consumers = [consumer.uid for consumer in claim.status.reserved_for]
        if all(uid == pod_uid for uid in consumers):
            return view.is_abandoned(claim)
        # A device in two claims keeps the pods of both from running, so a claim without a running pod is released. Pods
        # that share a claim from before a crash, on a node where none of them fits, would wait for each other.
        if age < view.config.abandoned_seconds:
            return False
        uid = claim.metadata.uid
        if uid not in self._unused:
            self._unused[uid] = self._is_unused(claim)
        return self._unused[uid]

    def _is_unused(self, claim: ResourceClaim) -> bool:
        """True when none of its pods is bound or will be: another claim has a device of this one, or the schedulers
        found no node for any of them. Pods of schedulers that do not call this service count as about to be bound.
        """
        view = self._view
        pods = view.users(claim, self._names)
        may_clear_for = view.config.may_clear_for
        waiting = all(
            pod is not None and not pod.spec.node_name and may_clear_for(pod.spec.scheduler_name) for pod in pods
        )
        planned = any(pod is not None and view.is_planned(pod.metadata.uid) for pod in pods)
        if not waiting or planned or view.is_being_bound(claim, self._names):
            return False
        return bool(view.ledger.rivals(claim)) or self._are_unschedulable(claim, pods)

    def _are_unschedulable(self, claim: ResourceClaim, pods: Sequence[Pod | None]) -> bool:
        """False while devices may still become ready: a bind may wait for them, and no pod condition shows it."""
        view = self._view
        config = view.config
        if readiness.awaited(claim) and not readiness.unavailable(
            claim, view.clock.wall(), config.binding_conditions_timeout
        ):
            return False
        return all(
            pod is not None and pod.spec.scheduler_name in config.scheduler_names and reported_unschedulable(pod)
            for pod in pods
        )


def _statuses(claims: Sequence[ResourceClaim]) -> list[tuple[str, ResourceClaimStatus]]:
    """What counts of the claims: users can write the rest."""
    return [(claim.metadata.uid, claim.status) for claim in claims]


def reported_unschedulable(pod: Pod) -> bool:
    """True when the scheduler's last attempt found no node."""
    return any(
        condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )
