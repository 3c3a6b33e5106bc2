"""What becomes of a nomination: victims are told to go and awaited, then the pod is, until it is bound or gives up.

Promises
- A nominated pod waits for its victims; nobody else is evicted for it meanwhile. A victim that is not gone in time is
  stuck: that is said, the nomination ends, and nothing more is expected of that victim.
- No victim is told to go once the pod fits without that.
- A claim that nobody uses any more when its victims are gone is deallocated at once.
- A nomination ends when its pod is bound or gone, has lost its place, or has waited for too long. Whoever was refused
  because of it is woken then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.plurals import counted
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.feasibility import node_statuses, pre_filter
from dra_extender.scheduling.nomination.evictions import Evictions
from dra_extender.scheduling.nomination.marks import Marks
from dra_extender.scheduling.nomination.nominations import Nomination, Nominations
from dra_extender.scheduling.nomination.preemptors import Preemptors
from dra_extender.scheduling.nomination.presentterms import PresentTerms
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED, NominationEnd
from dra_extender.scheduling.ports import Messenger, Observer
from dra_extender.scheduling.preemption.evaluator import keeps_place
from dra_extender.scheduling.preemption.result import known_to
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)


class Tending:
    """One per service."""

    def __init__(
        self,
        view: View,
        nominations: Nominations,
        preemptors: Preemptors,
        terms: PresentTerms,
        marks: Marks,
        evictions: Evictions,
        deferred: DeferredWork,
        clearer: Clearer,
        requeue: RequeueTrigger,
        messenger: Messenger,
        observer: Observer,
        leading: Callable[[], bool],
    ) -> None:
        self._view = view
        self._nominations = nominations
        self._preemptors = preemptors
        self._terms = terms
        self._marks = marks
        self._evictions = evictions
        self._deferred = deferred
        self._clearer = clearer
        self._requeue = requeue
        self._messenger = messenger
        self._observer = observer
        self._leading = leading

    async def work(self) -> None:
        """Look after all of them once."""
        for nomination in self._nominations:
            if nomination.pod.metadata.uid in self._nominations and self._leading():
                await self.tend(nomination)
                await asyncio.sleep(0)

    async def tend(self, nomination: Nomination) -> None:
        """Do what is to be done for this one now."""
        view, uid = self._view, nomination.pod.metadata.uid
        pod = view.pods.get(uid)
        if pod is None or view.pods.leaving(uid):
            self.end(nomination, "gone")
        elif pod.spec.node_name:
            self.end(nomination, "bound" if pod.spec.node_name == nomination.node else "elsewhere")
        elif uid not in view.binding:
            await self._await_victims(nomination, pod)

    async def begin(self, nomination: Nomination, victims: Sequence[Pod], nodes: Sequence[str]) -> None:
        """Tell the victims to go, for the first time. Much may have happened while the nomination was being stored:
        nobody goes when the pod fits on one of these nodes by now.
        """
        if self._stands(nomination) and await self._fits(nomination.pod, nodes):
            self.end(nomination, "fits")
        await self._evict(nomination, victims)

    def _stands(self, nomination: Nomination) -> bool:
        """True as long as victims may be told to go for it: it has not ended, nor has what it is for."""
        view, uid = self._view, nomination.pod.metadata.uid
        pod = view.pods.get(uid)
        waits = pod is not None and not pod.spec.node_name and not view.pods.leaving(uid) and uid not in view.binding
        return waits and uid in self._nominations and self._leading()

    async def _evict(self, nomination: Nomination, victims: Sequence[Pod]) -> None:
        for victim in victims:
            if self._stands(nomination) and self._evictions.may_try(victim):
                await self.evict(nomination, victim)

    async def _await_victims(self, nomination: Nomination, pod: Pod) -> None:
        view = self._view
        there = [victim for uid in nomination.victims if (victim := view.pods.get(uid)) is not None]
        there = [victim for victim in there if victim.status.phase not in ("Succeeded", "Failed")]
        if not there:
            await self._await_binding(nomination, pod)
            return
        if view.clock.monotonic() >= nomination.until:
            self._give_up(nomination, pod, there)
            return
        staying = [victim for victim in there if not victim.metadata.deletion_timestamp]
        if staying and await self._fits(pod, (nomination.node,)):
            self.end(nomination, "fits")
            return
        await self._evict(nomination, staying)
        for victim in there:
            if victim not in staying:
                await self._evictions.explain_again(victim)
        if self._stands(nomination):
            await self._marks.name_again(nomination, pod)

    async def evict(self, nomination: Nomination, victim: Pod) -> None:
        """Tell one victim to go. The nomination ends when it may not, and nobody has gone yet."""
        devices = nomination.devices.get(victim.metadata.uid, ())
        if await self._evictions.evict(victim, nomination.pod, nomination.node, devices):
            return
        others = [uid for uid in nomination.victims if uid != victim.metadata.uid]
        if not any(map(self._is_leaving, others)) and nomination.pod.metadata.uid in self._nominations:
            self.end(nomination, "forbidden")

    def _is_leaving(self, victim_uid: str) -> bool:
        """True for a victim that is gone, going, or was told to go: the watch may be late."""
        victim = self._view.pods.get(victim_uid)
        return victim is None or bool(victim.metadata.deletion_timestamp) or self._evictions.told(victim_uid)

    def _give_up(self, nomination: Nomination, pod: Pod, there: list[Pod]) -> None:
        names = ", ".join(victim.metadata.key for victim in there)
        for victim in there:
            self._evictions.give_up(victim)
            note = f"should have made room for {known_to(victim, pod)} and is not gone in time"
            self._messenger.record_event(victim, "Warning", "PreemptionStuck", note, action="Preempting")
        note = f"{counted(len(there), 'pod')} on node {nomination.node} did not make room in time: {names}"
        self._messenger.record_event(pod, "Warning", "PreemptionStuck", note, action="Preempting")
        self._preemptors.avoid(nomination.pod.metadata.uid, nomination.node, nomination.victims)
        self.end(nomination, "stuck")

    # --- when all are gone ------------------------------------------------------------------------------------------

    async def _await_binding(self, nomination: Nomination, pod: Pod) -> None:
        """The devices are kept a while longer: the claims have to be deallocated, and the scheduler to try again."""
        config, now = self._view.config, self._view.clock.monotonic()
        if nomination.freed is None:
            until = max(nomination.until, now + config.preemption_margin_seconds)
            nomination = msgspec.structs.replace(nomination, freed=now, until=until)
            self._nominations.put(nomination)
            self._requeue.improved()
        freed = nomination.freed if nomination.freed is not None else now
        if await self._release(nomination):
            return
        if nomination.pod.metadata.uid not in self._nominations:
            return
        if now >= nomination.until:
            self.end(nomination, "expired")
        elif now - freed >= config.preemption_lost_seconds and await self._is_lost(pod, nomination.node):
            self.end(nomination, "lost")

    async def _release(self, nomination: Nomination) -> bool:
        """Deallocate what nobody uses any more. True when claims of victims are still taken, and not for too long."""
        left = False
        for uid in nomination.claims:
            claim = self._view.ledger.by_uid(uid)
            if claim is None or claim.allocation is None:
                continue
            if self._is_unused(claim):
                note = "the devices are released: the pods that used them were preempted"
                await self._clearer.clear(claim, "preempted", note)
            left = left or self._is_going(claim)
        return left and self._view.clock.monotonic() < nomination.until

    def _is_unused(self, claim: ResourceClaim) -> bool:
        """Who else has a claim that is being deleted, or is reserved for pods that are gone, deallocates it."""
        idle = not claim.status.reserved_for and not claim.metadata.deletion_timestamp
        return idle and not self._view.in_flight(claim) and self._clearer.may_try(claim)

    def _is_going(self, claim: ResourceClaim) -> bool:
        """True when nobody who uses the claim is still there."""
        pods = [self._view.pods.get(consumer.uid) for consumer in claim.status.reserved_for]
        return bool(pods) and all(pod is None for pod in pods)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _fits(self, pod: Pod, nodes: Sequence[str]) -> bool:
        found, _ = await self._deferred.decide(pod, lambda view: node_statuses(view, pre_filter(view, pod), nodes))
        return bool(found.fits)

    async def _is_lost(self, pod: Pod, node: str) -> bool:
        """True when more pods would have to go, were there any of lower priority."""
        terms = self._terms.of(pod)
        keeps, _ = await self._deferred.decide(pod, lambda view: keeps_place(view, terms, node))
        return not keeps

    def end(self, nomination: Nomination, how: NominationEnd) -> None:
        """Nothing is kept for the pod any more."""
        uid = nomination.pod.metadata.uid
        self._nominations.drop(uid)
        self._marks.erase(uid, nomination.node)
        self._observer.count(NOMINATIONS_ENDED, how)
        log.info("a nomination has ended", pod=nomination.pod.metadata.key, node=nomination.node, how=how)
        self._requeue.improved()
