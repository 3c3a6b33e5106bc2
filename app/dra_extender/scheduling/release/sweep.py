"""Releases the allocations that crashes leave behind.

The claim controller deallocates a claim when its last consumer goes, but not a claim that never had a consumer. A claim
that is reserved for a pod that is never bound keeps its devices as long as the pod exists.

Promises: costs nothing while bound pods use the claims, and little per turn. A claim is cleared only if, for the whole
time, it was idle or reserved for one unbound pod, and filter offered no node for its pods. The write requires the
version that the decision was made on. A filter call that offers no node does not keep a claim: otherwise pods that hold
each other's devices would wait for ever. If the settings name the schedulers that call this service, claims of other
schedulers' pods are never cleared.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, is_passing
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling import readiness
from dra_extender.scheduling.claims import claim_names
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.idle import IdleAllocations
from dra_extender.scheduling.outcomes import CLAIM_READ_ERRORS
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.unseen import Unseen

log = structlog.get_logger(__name__)

GRACE_SECONDS = 60.0
"""Added to the time that another scheduler may take to bind a pod after reserving its claims."""

PHANTOM_SECONDS = 15.0
"""A claim that the watch does not show within this time is read."""

NAMES_PER_TURN = 2_000
"""How many pods and names of claims are looked at in one turn."""


class Sweeper:
    """`start` when schedulers begin to call this replica, then `work` every few seconds."""

    def __init__(self, handle: Handle, clearer: Clearer, idle: IdleAllocations, unseen: Unseen) -> None:
        self._view = handle.view
        self._ports = handle.ports
        self._event_handler = handle.event_handler
        self._clearer = clearer
        self._idle = idle
        self._unseen = unseen
        self._observer = handle.observer
        self._offered: LRUCache[str, float] = LRUCache(100_000)
        self._started = 0.0
        self._used_by_others: Mapping[str, Collection[str]] | None = None

    def start(self) -> None:
        """Claims count as idle from now on, because this replica does not know which nodes another replica offered."""
        self._started = self._view.clock.monotonic()

    def offered(self, claim_uid: str) -> None:
        """A node was offered for a pod of the claim: the scheduler may bind it."""
        self._offered[claim_uid] = self._view.clock.monotonic()

    async def work(self) -> None:
        """Clear the claims that have been unused for `sweep_seconds`."""
        await self._forget_phantoms()
        least = self._view.config.sweep_seconds
        if least <= 0:
            return
        self._used_by_others = None
        now = self._view.clock.monotonic()
        for uid, entry in self._idle.entries():
            seconds = now - max(entry.since, self._started, self._offered.get(uid, entry.since))
            if seconds >= least:
                await self._sweep(uid, seconds)
                await asyncio.sleep(0)

    async def _forget_phantoms(self) -> None:
        """Read the claims that a reply has shown but no watch, because they may be gone. Stop when the API server does
        not answer.
        """
        for uid in self._unseen.overdue(PHANTOM_SECONDS):
            claim = self._view.ledger.by_uid(uid)
            if claim is None:
                self._unseen.forget(uid)
                continue
            try:
                found = await self._ports.read_claim(claim.metadata.namespace, claim.metadata.name)
            except ApiError as error:
                self._observer.count(CLAIM_READ_ERRORS, "sweep")
                log.info("a claim that no watch has shown was not read", claim=claim.metadata.key, error=repr(error))
                if is_passing(error):
                    return
                self._unseen.looked_up(uid)
                continue
            if found is None or found.metadata.uid != uid:
                self._event_handler.gone(claim)
            else:
                self._unseen.looked_up(uid)

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
            self._used_by_others = None  # the API server may have taken long to answer
            return
        pod = view.pods.get(claim.status.reserved_for[0].uid)
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
        return seconds >= view.config.binding_seconds + GRACE_SECONDS

    async def _is_used_by_others(self, claim: ResourceClaim) -> bool:
        """True when a pod of a scheduler that does not call this service uses the claim."""
        if self._used_by_others is None:
            self._used_by_others = await self._find_used_by_others()
        meta = claim.metadata
        used = self._used_by_others.get(meta.namespace, ())
        return meta.name in used or (meta.controller is not None and meta.controller.uid in used)

    async def _find_used_by_others(self) -> Mapping[str, Collection[str]]:
        """By namespace: the UIDs of the pods of schedulers that do not call this service, and the claims they name."""
        view, looked = self._view, 0
        used: defaultdict[str, set[str]] = defaultdict(set)
        for pod in view.pods if view.config.scheduler_names else ():
            looked += 1 + len(pod.spec.resource_claims)
            if looked >= NAMES_PER_TURN:
                looked = 0
                await asyncio.sleep(0)
            uid = pod.metadata.uid
            if not view.config.may_clear_for(pod.spec.scheduler_name) and not view.pods.is_terminating(uid):
                used[pod.metadata.namespace].update(claim_names(pod), (uid,))
        return used
