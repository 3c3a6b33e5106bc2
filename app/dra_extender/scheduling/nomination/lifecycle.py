"""The life of a nomination by preemption: victims are evicted and awaited, then the pod, until it is bound or gives up.

Promises
- Victims are evicted only through the Eviction API, with the UID of the chosen pod, so that no budget is violated. A
  victim gets the condition DisruptionTarget with the reason PreemptionByScheduler, as from kube-scheduler: while such a
  pod terminates, kube-scheduler does not clear the preemptor's nomination.
- No further pod is evicted for a nominated pod while it waits for its victims. A victim that is not gone in time is
  stuck: this is reported, the nomination ends, and preemption no longer waits for that victim.
- No victim is evicted once the pod fits without it, or has lost its place to a pod of higher priority.
- A claim that no pod uses once its victims are gone is deallocated at once.
- A nomination ends when its pod is bound or gone, has lost its place, or has waited for too long. Then pods that were
  refused because of it are requeued.

Rules: Kubernetes 1.36, PreemptPod of pkg/scheduler/framework/preemption/executor.go. One difference: the API server
replaces the reason when it evicts the pod, so the condition is written again while the pod terminates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, DisruptionBudgetError, NotFoundError, is_passing
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.plaintext import counted, printable
from dra_extender.scheduling.feasibility import node_statuses, pre_filter
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nomination.nominations import Nomination, NominationRecords, Nominations
from dra_extender.scheduling.nomination.preemptors import Preemptors
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED, PREEMPTION_VICTIMS, NominationEnd, VictimResult
from dra_extender.scheduling.ports import Observer, Ports
from dra_extender.scheduling.preemption.evaluator import keeps_place
from dra_extender.scheduling.preemption.terms import PreemptionTerms, for_devices, known_to
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses

log = structlog.get_logger(__name__)

TARGET = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"
REMEMBERED = 10_000


class Evictions:
    """Evicts victims, and remembers which of them could not be evicted or did not terminate."""

    def __init__(self, view: View, ports: Ports, observer: Observer) -> None:
        self._view = view
        self._ports = ports
        self._observer = observer
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)
        self._refused: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._evicted: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._stuck: LRUCache[str, bool] = LRUCache(REMEMBERED)

    async def forbidden(self, victims: Sequence[Pod]) -> Pod | None:
        """The first victim that a budget protects now. Raises ApiError."""
        for victim in victims:
            try:
                await self._ports.evict_pod(victim, dry_run=True)
            except DisruptionBudgetError:
                self._observer.count(PREEMPTION_VICTIMS, "forbidden")
                return victim
            except (NotFoundError, ConflictError):
                continue
            except ApiError as error:
                if not is_passing(error):
                    self._refused[victim.metadata.uid] = True
                    self._pauses.failed(victim.metadata.uid)
                raise
        return None

    @property
    def refused(self) -> frozenset[str]:
        """UIDs of pods whose eviction the API server refused lately, for example by an admission webhook."""
        return frozenset(uid for uid in self._refused if not self._pauses.over(uid))

    @property
    def stuck(self) -> frozenset[str]:
        """UIDs of victims that were evicted long ago and are still there."""
        return frozenset(uid for uid in self._stuck if self._view.pods.get(uid) is not None)

    def give_up(self, victim: Pod) -> None:
        """The victim did not terminate in time: do not wait for it any more."""
        self._stuck[victim.metadata.uid] = True

    def may_try(self, victim: Pod) -> bool:
        """False for a while after a failure."""
        return self._pauses.over(victim.metadata.uid)

    def evicted(self, victim_uid: str) -> bool:
        """True when the API server accepted the eviction."""
        return victim_uid in self._evicted

    async def evict(self, victim: Pod, preemptor: Pod, node: str, devices: Sequence[DeviceID]) -> bool:
        """Evict the victim. False when a budget forbids it or the API server refuses: try again later."""
        uid = victim.metadata.uid
        try:
            await self.write_condition(victim)
            await self._ports.evict_pod(victim)
        except (NotFoundError, ConflictError):
            return True
        except ApiError as error:
            result: VictimResult = "forbidden" if isinstance(error, DisruptionBudgetError) else "failed"
            self._pauses.failed(uid)
            self._observer.count(PREEMPTION_VICTIMS, result)
            log.warning("a pod was not evicted, will try again", pod=victim.metadata.key, error=repr(error))
            return False
        self._pauses.forget(uid)
        self._evicted[uid] = True
        self._observer.count(PREEMPTION_VICTIMS, "evicted")
        log.info("evicted", pod=victim.metadata.key, preemptor=preemptor.metadata.key, node=node)
        reader = self._view.config.reader(victim.metadata.namespace)
        names = ["/".join(device) for device in devices]
        note = f"preempted by {known_to(reader, preemptor)} on node {node}{for_devices(names)}"
        self._ports.record_event(victim, "Normal", "Preempted", note, action="Preempting")
        return True

    async def write_condition(self, victim: Pod) -> None:
        """Write the condition DisruptionTarget. Raises ApiError."""
        if any(item.type == TARGET and item.reason == PREEMPTED for item in victim.status.conditions):
            return
        condition = {
            "type": TARGET,
            "status": "True",
            "reason": PREEMPTED,
            "message": f"{printable(victim.spec.scheduler_name)}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": format_time(self._view.clock.wall()),
        }
        await self._ports.patch_pod_status(victim, {"conditions": [condition]})

    async def write_condition_again(self, victim: Pod) -> None:
        """Write the condition once more while the victim terminates: the API server may have replaced the reason."""
        if not self.may_try(victim):
            return
        try:
            await self.write_condition(victim)
        except (NotFoundError, ConflictError):
            return
        except ApiError as error:
            log.info("the condition of a terminating pod was not written", pod=victim.metadata.key, error=repr(error))
        self._pauses.failed(victim.metadata.uid)


class NominationLifecycle:
    """Advances every nomination. `terms`: the terms on which a pod may preempt now."""

    def __init__(
        self,
        handle: Handle,
        nominations: Nominations,
        preemptors: Preemptors,
        evictions: Evictions,
        clearer: Clearer,
        terms: Callable[[Pod], PreemptionTerms],
    ) -> None:
        self.records = NominationRecords(handle.view, handle.ports)
        self._handle = handle
        self._view = handle.view
        self._nominations = nominations
        self._preemptors = preemptors
        self._evictions = evictions
        self._clearer = clearer
        self._terms = terms

    async def work(self) -> None:
        """Advance each nomination once, and remove what ended nominations left on pods."""
        for nomination in self._nominations:
            if nomination.pod.metadata.uid in self._nominations and self._handle.leading():
                await self.advance(nomination)
                await asyncio.sleep(0)
        await self.records.work()

    async def advance(self, nomination: Nomination) -> None:
        """Do what has to be done for this nomination now."""
        view, uid = self._view, nomination.pod.metadata.uid
        pod = view.pods.get(uid)
        if pod is None or view.pods.is_terminating(uid):
            self.end(nomination, "gone")
        elif pod.spec.node_name:
            self.end(nomination, "bound" if pod.spec.node_name == nomination.node else "elsewhere")
        elif uid not in view.binding:
            await self._await_victims(nomination, pod)

    async def begin(self, nomination: Nomination, victims: Sequence[Pod], nodes: Sequence[str]) -> None:
        """Evict the victims for the first time, unless the pod now fits on one of these nodes: the cluster may have
        changed while the nomination was being stored.
        """
        if self._is_current(nomination) and await self._fits(nomination.pod, nodes):
            self.end(nomination, "fits")
        await self._evict_all(nomination, victims)

    def _is_current(self, nomination: Nomination) -> bool:
        """True while victims may be evicted for it: the nomination has not ended, and its pod still waits."""
        view, uid = self._view, nomination.pod.metadata.uid
        pod = view.pods.get(uid)
        waits = (
            pod is not None and not pod.spec.node_name and not view.pods.is_terminating(uid) and uid not in view.binding
        )
        return waits and uid in self._nominations and self._handle.leading()

    async def _evict_all(self, nomination: Nomination, victims: Sequence[Pod]) -> None:
        for victim in victims:
            if self._is_current(nomination) and self._evictions.may_try(victim):
                await self._evict(nomination, victim)

    async def _evict(self, nomination: Nomination, victim: Pod) -> None:
        """Evict one victim. The nomination ends when this is forbidden and no victim is terminating yet."""
        devices = nomination.devices.get(victim.metadata.uid, ())
        if await self._evictions.evict(victim, nomination.pod, nomination.node, devices):
            return
        others = [uid for uid in nomination.victims if uid != victim.metadata.uid]
        if not any(map(self._is_terminating, others)) and nomination.pod.metadata.uid in self._nominations:
            self.end(nomination, "forbidden")

    def _is_terminating(self, victim_uid: str) -> bool:
        """True for a victim that is gone, terminating or evicted: the watch may be late."""
        victim = self._view.pods.get(victim_uid)
        return victim is None or bool(victim.metadata.deletion_timestamp) or self._evictions.evicted(victim_uid)

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
        if staying and (how := await self._needless(nomination, pod)):
            self.end(nomination, how)
            return
        await self._evict_all(nomination, staying)
        for victim in there:
            if victim not in staying:
                await self._evictions.write_condition_again(victim)
        if self._is_current(nomination):
            await self.records.name_again(nomination, pod)

    async def _needless(self, nomination: Nomination, pod: Pod) -> NominationEnd | None:
        """Why no further victim is evicted: the pod fits without, or would not fit with all victims gone."""
        if await self._fits(pod, (nomination.node,)):
            return "fits"
        return "lost" if await self._is_lost(nomination, pod) else None

    def _give_up(self, nomination: Nomination, pod: Pod, there: list[Pod]) -> None:
        """The time is over. Victims that were never evicted are not stuck."""
        reader = self._view.config.reader
        there = [victim for victim in there if self._is_terminating(victim.metadata.uid)]
        if not there:
            self.end(nomination, "expired")
            return
        for victim in there:
            self._evictions.give_up(victim)
            note = f"was preempted by {known_to(reader(victim.metadata.namespace), pod)} and is not gone in time"
            self._handle.ports.record_event(victim, "Warning", "PreemptionStuck", note, action="Preempting")
        victims = reader(pod.metadata.namespace).listed("pod", (victim.metadata.key for victim in there))
        note = f"{counted(len(there), 'preempted pod')} on node {nomination.node} not gone in time: {victims}"
        self._handle.ports.record_event(pod, "Warning", "PreemptionStuck", note, action="Preempting")
        self._preemptors.avoid(nomination.pod.metadata.uid, nomination.node, nomination.victims)
        self.end(nomination, "stuck")

    async def _await_binding(self, nomination: Nomination, pod: Pod) -> None:
        """Keep the devices until the claims are deallocated and the scheduler tries the pod again."""
        config, now = self._view.config, self._view.clock.monotonic()
        if nomination.freed is None:
            until = max(nomination.until, now + config.preemption_margin_seconds)
            nomination = msgspec.structs.replace(nomination, freed=now, until=until)
            self._nominations.put(nomination)
            self._handle.requeue.improved()
        freed = nomination.freed if nomination.freed is not None else now
        if await self._release(nomination):
            return
        if nomination.pod.metadata.uid not in self._nominations:
            return
        if now >= nomination.until:
            self.end(nomination, "expired")
        elif now - freed >= config.preemption_lost_seconds and await self._is_lost(nomination, pod):
            self.end(nomination, "lost")

    async def _release(self, nomination: Nomination) -> bool:
        """Deallocate claims that no pod uses. True while claims of victims are still allocated and time is left."""
        left = False
        for uid in nomination.claims:
            claim = self._view.ledger.by_uid(uid)
            if claim is None or claim.allocation is None:
                continue
            if self._is_unused(claim):
                note = "the devices are released: the pods that used them were preempted"
                await self._clearer.clear(claim, "preempted", note)
            left = left or self._is_released_soon(claim)
        return left and self._view.clock.monotonic() < nomination.until

    def _is_unused(self, claim: ResourceClaim) -> bool:
        """False for a claim that is being deleted or is reserved for pods that are gone: the claim controller
        deallocates it.
        """
        idle = not claim.status.reserved_for and not claim.metadata.deletion_timestamp
        return idle and not self._view.in_flight(claim) and self._clearer.may_try(claim)

    def _is_released_soon(self, claim: ResourceClaim) -> bool:
        """True when every pod for which the claim is reserved is gone."""
        pods = [self._view.pods.get(consumer.uid) for consumer in claim.status.reserved_for]
        return bool(pods) and all(pod is None for pod in pods)

    async def _fits(self, pod: Pod, nodes: Sequence[str]) -> bool:
        found, _ = await self._handle.deferred.decide(
            pod, lambda view: node_statuses(view, pre_filter(view, pod), nodes)
        )
        return bool(found.fits)

    async def _is_lost(self, nomination: Nomination, pod: Pod) -> bool:
        """True when the pod would need more victims: a pod of higher priority took the devices, for example."""
        terms = self._terms(pod)
        terms = msgspec.structs.replace(terms, terminating=terms.terminating.union(nomination.victims))
        keeps, _ = await self._handle.deferred.decide(pod, lambda view: keeps_place(view, terms, nomination.node))
        return not keeps

    def end(self, nomination: Nomination, how: NominationEnd) -> None:
        """End the nomination: nothing is kept for the pod any more."""
        uid = nomination.pod.metadata.uid
        self._nominations.drop(uid)
        self.records.erase(uid, nomination.node)
        self._handle.observer.count(NOMINATIONS_ENDED, how)
        log.info("a nomination has ended", pod=nomination.pod.metadata.key, node=nomination.node, how=how)
        self._handle.requeue.improved()
