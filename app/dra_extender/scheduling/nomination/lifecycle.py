"""The life of a nomination by preemption: victims are evicted and awaited, then the pod, until it is bound or gives up.

Promises
- Victims are evicted only through the Eviction API, with the UID of the chosen pod, so that no budget is violated. A
  victim gets the condition DisruptionTarget with the reason PreemptionByScheduler, as from kube-scheduler: while such a
  pod terminates, kube-scheduler does not clear the preemptor's nomination.
- No further pod is evicted for a nominated pod while it waits for its victims. A victim that is not gone in time is
  stuck: this is reported, the nomination ends, and preemption no longer waits for that victim.
- No victim is evicted once the pod fits without it, has lost its place to a pod of higher priority, or cannot use its
  node because of a rule that the service knows. After a nomination in vain, filter has to refuse the pod again.
- A claim that no pod uses once its victims are gone is deallocated at once.
- A nomination ends when its pod is bound or gone, has lost its place, or has waited for too long. Then pods that were
  refused because of it are requeued.

Rules: Kubernetes 1.36, PreemptPod of pkg/scheduler/framework/preemption/executor.go. One difference: the API server
replaces the reason when it evicts the pod, so the condition is written again while the pod terminates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec
import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod, PodDisruptionBudget
from dra_extender.api.errors import ApiError, ConflictError, DisruptionBudgetError, NotFoundError
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceID
from dra_extender.plaintext import counted, printable
from dra_extender.scheduling.gangs.controller import Gangs
from dra_extender.scheduling.gangs.gang import gang_with_devices
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nomination.nominations import Nomination, NominationRecords, Nominations, is_preempting
from dra_extender.scheduling.nomination.preemptors import Preemptors
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED, PREEMPTION_VICTIMS, NominationEnd, VictimResult
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace
from dra_extender.scheduling.preemption.gangs import PlacesWithout, placed_without
from dra_extender.scheduling.preemption.terms import NEVER, PreemptionTerms, for_devices, known_to
from dra_extender.scheduling.reader import listed
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.waiting import Backoffs

log = structlog.get_logger(__name__)

TARGET = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"
REMEMBERED = 10_000
UNKNOWN: Final[PlacesWithout] = ((), {})
"""The answer if workers have not answered yet."""


class Evictions:
    """Evicts victims, and remembers which of them could not be evicted or did not terminate."""

    def __init__(self, handle: Handle) -> None:
        self._view, self._ports, self._observer = handle.view, handle.ports, handle.observer
        self._backoffs: Backoffs[str] = Backoffs(handle.view.clock, handle.view.config)
        self._refused: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self.evicted: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self.given_up: LRUCache[str, bool] = LRUCache(REMEMBERED)
        """Victims that did not terminate in time (UIDs)."""

    async def forbidden(self, victims: Sequence[Pod]) -> Pod | None:
        """The first victim that a budget protects now. Raises ApiError."""
        for victim in victims:
            try:
                await self._ports.evict_pod(victim, dry_run=True)
            except (NotFoundError, ConflictError):
                continue
            except ApiError as error:
                if error.status:
                    self._failed(victim, error)
                if isinstance(error, DisruptionBudgetError):
                    self._observer.count(PREEMPTION_VICTIMS, "forbidden")
                    return victim
                raise
        return None

    def _failed(self, victim: Pod, error: ApiError) -> None:
        """Without an answer (status 0), nothing is known about this victim."""
        self._backoffs.failed(victim.metadata.uid)
        if error.status:
            self._refused[victim.metadata.uid] = True

    @property
    def refused(self) -> frozenset[str]:
        """UIDs of pods that the API server did not evict lately, for example because of an admission webhook."""
        return frozenset(uid for uid in self._refused if not self._backoffs.over(uid))

    @property
    def stuck(self) -> frozenset[str]:
        """UIDs of victims that were evicted long ago and are still there."""
        return frozenset(uid for uid in self.given_up if self._view.pods.get(uid) is not None)

    def may_try(self, victim: Pod) -> bool:
        """False for a while after a failure."""
        return self._backoffs.over(victim.metadata.uid)

    def failed_before(self, victim: Pod) -> bool:
        """True when the API server did not evict the victim at least once."""
        return victim.metadata.uid in self._refused

    async def evict(self, victim: Pod, preemptor: Pod, node: str, devices: Sequence[DeviceID]) -> bool:
        """Evict the victim. False when a budget forbids it or the API server refuses: try again later."""
        uid = victim.metadata.uid
        try:
            await self._announce(victim)
            await self._ports.evict_pod(victim)
        except (NotFoundError, ConflictError):
            return True
        except ApiError as error:
            result: VictimResult = "forbidden" if isinstance(error, DisruptionBudgetError) else "failed"
            self._failed(victim, error)
            self._observer.count(PREEMPTION_VICTIMS, result)
            log.warning("a pod was not evicted, will try again", pod=victim.metadata.key, error=repr(error))
            return False
        self._backoffs.forget(uid)
        self.evicted[uid] = True
        self._observer.count(PREEMPTION_VICTIMS, "evicted")
        log.info("evicted", pod=victim.metadata.key, preemptor=preemptor.metadata.key, node=node)
        reader = self._view.config.reader(victim.metadata.namespace)
        names = ["/".join(device) for device in devices]
        note = f"preempted by {known_to(reader, preemptor)} on node {node}{for_devices(names)}"
        self._ports.record_event(victim, "Normal", "Preempted", note, action="Preempting")
        return True

    async def _announce(self, victim: Pod) -> None:
        """Write the condition. A victim to which it could not be written before, such as a pod that is too large, is
        evicted without it.
        """
        try:
            await self.write_condition(victim)
        except ApiError as error:
            if not error.status or not self.failed_before(victim):
                raise

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
        self._backoffs.failed(victim.metadata.uid)


class Questions(msgspec.Struct, frozen=True):
    """What preemption asks about a pod, together with its gang if it has one."""

    handle: Handle
    nominations: Nominations
    evictions: Evictions
    budgets: Mapping[str, Mapping[str, PodDisruptionBudget]]
    gangs: Gangs

    def terms(self, pod: Pod) -> PreemptionTerms:
        """The terms on which the pod may preempt others now. The view knows what is kept for other pods."""
        victims = (each.victims for each in self.nominations if not each.is_for(pod))
        return PreemptionTerms(
            preemptor=pod,
            scheduler_names=self.handle.view.config.scheduler_names,
            violate_budgets=False,
            state_of=self.gangs.state,
            usage=self.gangs.usage,
            budgets=BudgetsByNamespace(self.budgets),
            terminating=frozenset(chain.from_iterable(victims)),
            stuck=self.evictions.stuck,
            spared=self.evictions.refused,
        )

    async def placed(
        self,
        pod: Pod,
        names: Sequence[str],
        victims: Sequence[str] | None = None,
        unknown: PlacesWithout | None = None,
    ) -> PlacesWithout | None:
        """Where the pod fits now with its gang, itself on one of these nodes; None if it does not. `victims` (UIDs):
        once these, and pods that terminate on the nodes, are gone. `unknown`: the answer if this cannot be decided now.
        """
        terms, leaving = self.terms(pod), victims is not None
        terms = msgspec.structs.replace(terms, terminating=terms.terminating.union(victims or ()))
        found, _ = await self.handle.deferred.decide(
            pod, lambda view: placed_without(view, terms, names, leaving=leaving, unknown=unknown)
        )
        return found

    async def is_lost(self, nomination: Nomination, pod: Pod) -> bool:
        """True when the pod would need more victims: a pod of higher priority took the devices, for example."""
        names = tuple(nomination.by_pod.values())
        return await self.placed(pod, names, nomination.victims, UNKNOWN) is None

    async def restored(self, pod: Pod) -> PlacesWithout | None:
        """The claims of terminating pods, and the places to keep for the pod or its gang. None when nothing is to be
        kept, and UNKNOWN.
        """
        gang = gang_with_devices(self.handle.view, pod)
        if pod.spec.preemption_policy == NEVER or pod.spec.scheduling_gates:
            return None
        pods = filter(is_preempting, gang.waiting if gang is not None else (pod,))
        names = tuple({each.status.nominated_node_name: None for each in pods})
        return await self.placed(pod, names, (), UNKNOWN)


class NominationLifecycle:
    def __init__(self, questions: Questions, preemptors: Preemptors, clearer: Clearer) -> None:
        self._questions = questions
        self._handle = handle = questions.handle
        self._view = handle.view
        self._nominations = questions.nominations
        self._evictions = questions.evictions
        self._preemptors = preemptors
        self._clearer = clearer
        self.records = NominationRecords(handle.view, handle.ports)

    async def work(self) -> None:
        """Advance each nomination once, and remove what ended nominations left on pods."""
        for nomination in self._nominations:
            if nomination.pod.metadata.uid in self._nominations and self._handle.leading():
                await self.advance(nomination)
                await asyncio.sleep(0)
        await self.records.work()

    async def advance(self, nomination: Nomination) -> None:
        pods = self._pods(nomination)
        waiting = [pod for pod in pods if not pod.spec.node_name]
        if len(pods) < len(nomination.by_pod):
            self.end(nomination, "gone")
        elif not waiting:
            there = sorted(pod.spec.node_name for pod in pods) == sorted(nomination.by_pod.values())
            self.end(nomination, "bound" if there else "elsewhere")
        elif not any(uid in self._view.binding for uid in nomination.by_pod):
            await self._await_victims(nomination, waiting[0])

    def _pods(self, nomination: Nomination) -> list[Pod]:
        """The nominated pods that are there and not terminating."""
        pods = self._view.pods
        found = (pods.get(uid) for uid in nomination.by_pod if not pods.is_terminating(uid))
        return [pod for pod in found if pod is not None]

    async def begin(self, nomination: Nomination, victims: Sequence[Pod], nodes: Sequence[str]) -> None:
        """Evict the victims for the first time, unless the pod now fits on one of these nodes: the cluster may have
        changed while the nomination was being stored.
        """
        if self._is_current(nomination) and await self._questions.placed(nomination.pod, nodes) is not None:
            self.end(nomination, "fits")
        await self._evict_all(nomination, victims)

    def _is_current(self, nomination: Nomination) -> bool:
        """True while victims may be evicted for it: the nomination has not ended, and its pod still waits."""
        pods, binding = self._pods(nomination), self._view.binding
        waits = len(pods) == len(nomination.by_pod) and not all(pod.spec.node_name for pod in pods)
        waits = waits and not any(uid in binding for uid in nomination.by_pod)
        return waits and nomination.pod.metadata.uid in self._nominations and self._handle.leading()

    async def _evict_all(self, nomination: Nomination, victims: Sequence[Pod]) -> None:
        view, usage = self._view, self._questions.gangs.usage
        for victim in sorted(victims, key=self._evictions.failed_before, reverse=True):
            if self._is_current(nomination) and nomination.suits(view, usage) and self._evictions.may_try(victim):
                await self._evict(nomination, victim)

    async def _evict(self, nomination: Nomination, victim: Pod) -> None:
        """Evict one victim. The nomination ends when this is forbidden and no victim is terminating yet."""
        devices = nomination.devices.get(victim.metadata.uid, ())
        node = victim.spec.node_name if nomination.nodes else nomination.node
        if await self._evictions.evict(victim, nomination.pod, node, devices):
            return
        others = [uid for uid in nomination.victims if uid != victim.metadata.uid]
        if not any(map(self._is_terminating, others)) and nomination.pod.metadata.uid in self._nominations:
            self.end(nomination, "forbidden")

    def _is_terminating(self, victim_uid: str) -> bool:
        """True for a victim that is gone, terminating or evicted: the watch may be late."""
        victim = self._view.pods.get(victim_uid)
        return victim is None or bool(victim.metadata.deletion_timestamp) or victim_uid in self._evictions.evicted

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
        if staying:
            if await self._questions.placed(pod, tuple(dict.fromkeys(nomination.by_pod.values()))) is not None:
                self.end(nomination, "fits")
                return
            suits = nomination.suits(view, self._questions.gangs.usage)
            if not suits or await self._questions.is_lost(nomination, pod):
                self.end(nomination, "lost")
                return
        await self._evict_all(nomination, staying)
        for victim in there:
            if victim not in staying:
                await self._evictions.write_condition_again(victim)
        for each in self._pods(nomination) if self._is_current(nomination) else ():
            await self.records.name_again(nomination, each)

    def _give_up(self, nomination: Nomination, pod: Pod, there: list[Pod]) -> None:
        """The time is over. Victims that were never evicted are not stuck."""
        reader = self._view.config.reader
        there = [victim for victim in there if self._is_terminating(victim.metadata.uid)]
        if not there:
            self.end(nomination, "expired")
            return
        for victim in there:
            self._evictions.given_up[victim.metadata.uid] = True
            note = f"was preempted by {known_to(reader(victim.metadata.namespace), pod)} and is not gone in time"
            self._handle.ports.record_event(victim, "Warning", "PreemptionStuck", note, action="Preempting")
        victims = reader(pod.metadata.namespace).listed("pod", (victim.metadata.key for victim in there))
        nodes = listed("node", dict.fromkeys(victim.spec.node_name for victim in there))
        note = f"{counted(len(there), 'preempted pod')} on {nodes} not gone in time: {victims}"
        self._handle.ports.record_event(pod, "Warning", "PreemptionStuck", note, action="Preempting")
        if not nomination.nodes:  # a gang uses no device of a stuck victim, and may use other devices of the node
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
        elif now - freed >= config.preemption_lost_seconds and await self._questions.is_lost(nomination, pod):
            self.end(nomination, "lost")

    async def _release(self, nomination: Nomination) -> bool:
        """Deallocate claims that no pod uses. True while claims of victims are still allocated and time is left."""
        left = False
        for uid in nomination.claims:
            claim = self._view.ledger.by_uid(uid)
            if claim is None or claim.allocation is None:
                continue
            idle = not claim.status.reserved_for and not claim.metadata.deletion_timestamp
            # The claim controller deallocates a claim that is being deleted or is reserved for pods that are gone.
            if idle and not self._view.in_flight(claim) and self._clearer.may_try(claim):
                note = "the devices are released: the pods that used them were preempted"
                await self._clearer.clear(claim, "preempted", note)
            pods = [self._view.pods.get(consumer.uid) for consumer in claim.status.reserved_for]
            left = left or (bool(pods) and all(pod is None for pod in pods))
        return left and self._view.clock.monotonic() < nomination.until

    def end(self, nomination: Nomination, how: NominationEnd) -> None:
        """End the nomination: nothing is kept for the pod any more."""
        self._nominations.drop(nomination.pod.metadata.uid)
        if how in ("expired", "lost"):
            gang = gang_with_devices(self._view, nomination.pod)
            for pod in gang.waiting if gang is not None else (nomination.pod,):
                self._preemptors.rest(pod.metadata.uid)
        self.records.ended(nomination)
        self._handle.observer.count(NOMINATIONS_ENDED, how)
        log.info("a nomination has ended", pod=nomination.pod.metadata.key, node=nomination.node, how=how)
        self._handle.requeue.improved()
