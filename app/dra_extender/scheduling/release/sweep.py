"""Allocations left behind by crashes are cleared, so that no device stays taken for nobody.

The claim controller deallocates a claim when its last consumer goes, but never one that has no consumer to begin with;
and a claim reserved for a pod that is never bound keeps its devices as long as the pod exists.

Promises: costs nothing while claims are used by bound pods. Cleared is only what was idle, or reserved for one unbound
pod, and for which no scheduler was offered a node, for the whole time; and only at the version that was judged. Asking
alone keeps nothing: pods that are refused for want of each other's devices would wait for ever. Claims that pods of
schedulers use which do not call us are left to these, when it is known which schedulers do.
"""

from __future__ import annotations

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
"""Added to the time a foreign scheduler may take to bind a pod after reserving its claims."""

PHANTOM_SECONDS = 15.0
"""A claim that the watch has not shown for so long is looked up."""


class Sweeper:
    """`start` when schedulers begin to ask this replica, `work` every few seconds from then on."""

    def __init__(self, handle: Handle, clearer: Clearer, idle: IdleAllocations, unseen: Unseen) -> None:
        self._view = handle.view
        self._ports = handle.ports
        self._intake = handle.intake
        self._clearer = clearer
        self._idle = idle
        self._unseen = unseen
        self._observer = handle.observer
        self._offered: LRUCache[str, float] = LRUCache(100_000)
        self._started = 0.0

    def start(self) -> None:
        """What another replica has offered before now is not known here: nothing counts as idle before."""
        self._started = self._view.clock.monotonic()

    def offered(self, claim_uid: str) -> None:
        """A scheduler knows a node for a pod that uses the claim, and may be about to bind it."""
        self._offered[claim_uid] = self._view.clock.monotonic()

    async def work(self) -> None:
        """Clear what nobody has used or was offered a node for, for long enough."""
        await self._forget_phantoms()
        least = self._view.config.sweep_seconds
        if least <= 0:
            return
        now = self._view.clock.monotonic()
        for uid, entry in self._idle.entries():
            seconds = now - max(entry.since, self._started, self._offered.get(uid, entry.since))
            if seconds >= least:
                await self._sweep(uid, seconds)

    async def _forget_phantoms(self) -> None:
        """Look up claims that replies have brought and no watch has shown; some of them may be gone. One that cannot be
        read keeps no other waiting, unless nobody answers at all.
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
                self._intake.gone(claim)
            else:
                self._unseen.looked_up(uid)

    async def _sweep(self, uid: str, seconds: float) -> None:
        """Clear the allocation if it is of no use. `seconds`: how long nobody has touched it or was offered a node."""
        view = self._view
        claim = view.ledger.by_uid(uid)
        if claim is None or claim.allocation is None:
            self._idle.strike(uid)
            return
        if view.in_flight(claim):
            return
        if not claim.status.reserved_for:
            if claim.metadata.deletion_timestamp:
                return  # the claim controller's business, as long as nobody has reserved it
            if self._is_for_others(claim):
                self.offered(uid)
                return
            await self._clearer.clear(claim, "idle", "the devices are released: nobody uses the claim")
            return
        pod = view.pods.get(claim.status.reserved_for[0].uid)
        if pod is not None and pod.spec.node_name:
            self._idle.strike(uid)
        elif pod is not None and self._abandoned(claim, pod, seconds):
            note = "the devices are released: the claim's pod was not bound"
            await self._clearer.clear(claim, "abandoned", note)

    def _abandoned(self, claim: ResourceClaim, pod: Pod, seconds: float) -> bool:
        """A pod that is gone or finished is the claim controller's business."""
        view = self._view
        if view.pods.leaving(pod.metadata.uid) or pod.metadata.uid in view.binding:
            return False
        if not view.config.may_clear_for(pod.spec.scheduler_name):
            return False
        if view.config.scheduler_names and not readiness.awaited(claim):
            return view.settled(claim)
        return seconds >= view.config.binding_seconds + GRACE_SECONDS

    def _is_for_others(self, claim: ResourceClaim) -> bool:
        """Whether a pod of a scheduler that does not call us wants the claim. A look at all pods, once in a while."""
        view = self._view
        if not view.config.scheduler_names:
            return False
        return any(
            not view.config.may_clear_for(pod.spec.scheduler_name) and _uses(pod, claim)
            for pod in view.pods
            if pod.metadata.namespace == claim.metadata.namespace and not view.pods.leaving(pod.metadata.uid)
        )


def _uses(pod: Pod, claim: ResourceClaim) -> bool:
    owner = claim.metadata.controller
    if owner is not None and owner.uid == pod.metadata.uid:
        return True
    return claim.metadata.name in claim_names(pod)
