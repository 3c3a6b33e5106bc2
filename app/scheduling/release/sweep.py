"""Allocations left behind by crashes are cleared, so that no device stays taken for nobody.

The claim controller deallocates a claim when its last consumer goes, but never one that has no consumer to begin with;
and a claim reserved for a pod that is never bound keeps its devices as long as the pod exists.

Promises: costs nothing while claims are used by bound pods. Cleared is only what was idle, or reserved for one unbound
pod, and for which no scheduler was offered a node, for the whole time; and only at the version that was judged. Asking
alone keeps nothing: pods that are refused for want of each other's devices would wait for ever.
"""

from __future__ import annotations

from cachetools import LRUCache

from app.api.core import Pod
from app.api.errors import ApiError
from app.api.resource import ResourceClaim
from app.scheduling import readiness
from app.scheduling.release.clear import clear
from app.scheduling.state import State

GRACE_SECONDS = 60.0
"""Added to the time a foreign scheduler may take to bind a pod after reserving its claims."""

PHANTOM_SECONDS = 15.0
"""A claim that the watch has not shown for so long is looked up."""


class Sweeper:
    """`start` when schedulers begin to ask this replica, `work` every few seconds from then on."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._offered: LRUCache[str, float] = LRUCache(100_000)
        self._started = 0.0

    def start(self) -> None:
        """What another replica has offered before now is not known here: nothing counts as idle before."""
        self._started = self._state.clock.monotonic()

    def offered(self, claim_uid: str) -> None:
        """A scheduler knows a node for a pod that uses the claim, and may be about to bind it."""
        self._offered[claim_uid] = self._state.clock.monotonic()

    async def work(self) -> None:
        """Clear what nobody has used or was offered a node for, for long enough."""
        await self._forget_phantoms()
        if self._state.limits.sweep_seconds <= 0:
            return
        now = self._state.clock.monotonic()
        for uid, quiet in list(self._state.quiet.items()):
            idle = now - max(quiet.since, self._started, self._offered.get(uid, quiet.since))
            if idle >= self._state.limits.sweep_seconds:
                await self._judge(uid, idle)

    async def _forget_phantoms(self) -> None:
        """A claim that came and went while the watch was broken, and that we met by a read or write of our own, would
        hold its devices for ever: the list after the gap does not have it, and nobody reports what was never seen.
        """
        state = self._state
        now = state.clock.monotonic()
        for uid in [uid for uid, since in state.unseen.items() if now - since >= PHANTOM_SECONDS]:
            claim = state.cluster.ledger.by_uid(uid)
            if claim is None:
                state.unseen.pop(uid, None)
                continue
            try:
                found = await state.ports.read_claim(claim.metadata.namespace, claim.metadata.name)
            except ApiError:
                return
            if found is None or found.metadata.uid != uid:
                state.gone(claim)
            else:
                state.unseen[uid] = now

    async def _judge(self, uid: str, idle: float) -> None:
        state = self._state
        claim = state.cluster.ledger.by_uid(uid)
        if claim is None or claim.allocation is None:
            state.quiet.pop(uid, None)
            return
        if state.in_flight(claim):
            return
        if not claim.status.reserved_for:
            if claim.metadata.deletion_timestamp:
                return  # the claim controller's business, as long as nobody has reserved it
            await clear(state, claim, "idle", "the devices are released: nobody uses the claim")
            return
        pod = state.pods.get(claim.status.reserved_for[0].uid)
        if pod is not None and pod.spec.node_name:
            state.quiet.pop(uid, None)
        elif pod is not None and self._abandoned(claim, pod, idle):
            await clear(state, claim, "abandoned", "the devices are released: the claim's pod was not bound")

    def _abandoned(self, claim: ResourceClaim, pod: Pod, idle: float) -> bool:
        """A pod that is gone or finished is the claim controller's business."""
        state = self._state
        if state.pods.leaving(pod.metadata.uid) or state.running(pod.metadata.uid) is not None:
            return False
        ours = pod.spec.scheduler_name in state.limits.scheduler_names
        if ours and not readiness.awaited(claim):
            return state.is_settled(claim)
        return idle >= state.limits.binding_seconds + GRACE_SECONDS
