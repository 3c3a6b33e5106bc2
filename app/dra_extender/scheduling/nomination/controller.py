"""The controller of preemption: pods that filter refused everywhere for want of devices preempt pods of lower priority.

Promises
- Pods are handled one after the other, by priority, then by how long they have waited.
- The devices are kept for the pod from the moment of the choice. The nomination is stored before the first victim is
  evicted, and no victim is evicted unless the API server would allow all evictions at that moment.
- In mode `advise` the same choice is made and reported, and nothing else happens.
- After a restart or a change of leader the nominations on pods are restored. The pod's status names the node only;
  everything else follows from the cluster. A nomination is restored only if the pod may preempt, and gets its devices
  on the node once pods that are terminating are gone. No further pod is evicted for it: a pod that needs more evictions
  preempts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from dra_extender.api.core import Pod, PodDisruptionBudget
from dra_extender.api.errors import ApiError
from dra_extender.scheduling.gangs.controller import Gangs
from dra_extender.scheduling.gangs.gang import gang_with_devices
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nomination.lifecycle import UNKNOWN, Evictions, NominationLifecycle, Questions
from dra_extender.scheduling.nomination.nominations import Nomination, Nominations, is_preempting
from dra_extender.scheduling.nomination.preemptors import Preemptor, Preemptors
from dra_extender.scheduling.outcomes import PREEMPTIONS, PreemptionResult
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.gangs import plans_of
from dra_extender.scheduling.preemption.terms import NoPreemption, Preemption, PreemptionTerms
from dra_extender.scheduling.reader import Reader
from dra_extender.scheduling.release.clear import Clearer

log = structlog.get_logger(__name__)

RESTORE_SECONDS: Final = 5.0
"""How long a new leader waits for workers, all nominations together,"""
RESTORE_PAUSE: Final = 0.5
"""and between two attempts."""
_NO_RESULT: dict[str, PreemptionResult] = {"fits": "needless", "waits": "needless", "unknown": "waiting"}


@dataclass(eq=False)
class PreemptionController:
    """`restore` when this replica begins to lead, then `work` about once a second. `_restored`: see `Extender`."""

    _handle: Handle
    _nominations: Nominations
    _budgets: Mapping[str, Mapping[str, PodDisruptionBudget]]
    _clearer: Clearer
    _gangs: Gangs
    _restored: asyncio.Event

    def __post_init__(self) -> None:
        view = self._view = self._handle.view
        self._evictions, self._preemptors = Evictions(self._handle), Preemptors(view.clock, view.config)
        self._questions = Questions(self._handle, self._nominations, self._evictions, self._budgets, self._gangs)
        self.terms = self._questions.terms
        self._lifecycle = NominationLifecycle(self._questions, self._preemptors, self._clearer)

    @property
    def stuck(self) -> int:
        """How many victims were evicted long ago and are still there."""
        return len(self._evictions.stuck)

    def refused(self, pod: Pod, names: Iterable[str]) -> None:
        """Filter has refused the pod on all of these nodes, where it lacks nothing but devices. One pod of a gang
        preempts for all.
        """
        if self._view.config.preemption == "off":
            return
        listed, lowest = tuple(names), self._view.pods.lowest_priority
        if listed in ((), (pod.status.nominated_node_name,)) or lowest is None or lowest >= pod.spec.priority:
            return
        gang, uid = gang_with_devices(self._view, pod), pod.metadata.uid
        others = [each.metadata.uid for each in gang.waiting if each.metadata.uid != uid] if gang is not None else ()
        if not any(map(self._preemptors.get, others)):
            self._preemptors.put(uid, listed, self._handle.requeue.revision)

    def answered(self, pod_uid: str) -> None:
        """The verb preempt has answered kube-scheduler: the pod will soon show whether it preempts."""
        if (preemptor := self._preemptors.get(pod_uid)) is not None:
            self._preemptors.consider(preemptor, again=True)

    def withdraw(self, pod_uid: str) -> None:
        """The pod fits somewhere, is bound, or is gone."""
        self._preemptors.drop(pod_uid)

    def pod_applied(self, pod: Pod) -> None:
        """The watch shows a pod. Remove a condition without a nomination: our write was stored late."""
        ours = self._view.config.preemption == "on" and self._restored.is_set() and self._handle.leading()
        if ours and is_preempting(pod) and pod.metadata.uid not in self._nominations:
            self._lifecycle.records.erase(pod.metadata.uid, pod.status.nominated_node_name)

    async def restore(self) -> None:
        """Continue with the nominations of the previous leader, by priority. All are decided again until workers have
        answered for all, none has anything to do, or the time does not suffice for another round.
        """
        self._lifecycle.records.clear()
        now, working = self._view.clock.monotonic, True
        deadline = now() + RESTORE_SECONDS
        while True:
            began = now()
            self._nominations.clear()
            pods = sorted(filter(is_preempting, self._view.pods), key=lambda pod: -pod.spec.priority)
            unknown = False
            for pod in pods:
                if pod.metadata.uid not in self._nominations:
                    unknown = await self._restore(pod) is None or unknown
                    await asyncio.sleep(0)
            worked, working = working, len(self._handle.deferred) > 0  # a worker may have answered in this round
            if not unknown or not (worked or working) or 2 * now() - began + RESTORE_PAUSE > deadline:
                break
            await asyncio.sleep(RESTORE_PAUSE)
        for pod in pods:
            if pod.metadata.uid not in self._nominations:
                self._lifecycle.records.erase(pod.metadata.uid, pod.status.nominated_node_name)
        for each in self._nominations:
            log.info("restored a nomination", pod=each.pod.metadata.key, node=each.node, victims=len(each.victims))

    async def work(self) -> None:
        """Advance the nominations, then evaluate preemption for pods that may preempt."""
        await self._advance()
        advanced = self._view.clock.monotonic()
        for preemptor in self._preemptors.due(self._view.pods):
            await self._consider(preemptor)
            await asyncio.sleep(0)  # a decision that is already known takes no turn
            if self._view.clock.monotonic() - advanced >= 1.0:
                await self._advance()
                advanced = self._view.clock.monotonic()

    async def _advance(self) -> None:
        if self._handle.leading():
            await self._lifecycle.work()

    async def _consider(self, preemptor: Preemptor) -> None:
        view, uid = self._view, preemptor.uid
        pod = view.pods.get(uid)
        if pod is None or pod.spec.node_name or view.pods.is_terminating(uid) or not self._is_scheduled(pod):
            self._preemptors.drop(uid)
            return
        if uid in self._nominations or uid in view.binding or not self._handle.leading():
            return
        terms = self.terms(pod)
        found, _ = await self._handle.deferred.decide(pod, preemptor.evaluation(terms).evaluate)
        again = isinstance(found, NoPreemption) and found.why in ("waits", "unknown", "fits", "nominated")
        self._preemptors.consider(preemptor, again=again)
        if isinstance(found, NoPreemption):
            self._handle.observer.count(PREEMPTIONS, _NO_RESULT.get(found.why, "hopeless"))
            if found.why == "hopeless" and self._budgets:
                await self._report_budgets(preemptor, pod, terms)
        elif view.config.preemption == "advise":
            self._handle.observer.count(PREEMPTIONS, "advised")
            self._report(preemptor, pod, "WouldPreempt", f"would preempt {found.text(self._reader(pod))}")
        else:
            await self._nominate(preemptor, found)

    def _is_scheduled(self, pod: Pod) -> bool:
        """True when an allowed scheduler schedules this pod, which the watch shows. A caller of filter may lie."""
        return not pod.spec.scheduling_gates and self._view.config.may_clear_for(pod.spec.scheduler_name)

    def _report(self, preemptor: Preemptor, pod: Pod, reason: str, note: str) -> None:
        """Record an event, unless the last one said the same."""
        if preemptor.said != note:
            preemptor.said = note
            self._handle.ports.record_event(
                pod, "Normal" if reason == "WouldPreempt" else "Warning", reason, note, action="Preempting"
            )

    async def _report_budgets(self, preemptor: Preemptor, pod: Pod, terms: PreemptionTerms) -> None:
        """Report when preemption would help but for budgets."""
        terms = msgspec.structs.replace(terms, violate_budgets=True, examined={})
        evaluator = PreemptionEvaluator(terms, preemptor.nodes(terms.stuck))
        found, _ = await self._handle.deferred.decide(pod, evaluator.evaluate)
        if isinstance(found, Preemption):
            note = f"a PodDisruptionBudget forbids to preempt {found.text(self._reader(pod))}"
            self._report(preemptor, pod, "PreemptionForbidden", note)

    def _reader(self, pod: Pod) -> Reader:
        return self._view.config.reader(pod.metadata.namespace)

    async def _nominate(self, preemptor: Preemptor, found: Preemption) -> None:
        """Keep the devices, check that all evictions are allowed, store the nomination, evict."""
        pod, victims = found.preemptor, [victim.pod for victim in found.victims]
        nomination = Nomination(
            pod=pod,
            node=found.node,
            nodes=found.nodes,
            victims=tuple(victim.metadata.uid for victim in victims),
            plans=found.plans,
            until=self._until(victims),
            claims=tuple(dict.fromkeys(claim.metadata.uid for victim in found.victims for claim in victim.claims)),
            devices=found.needed(),
        )
        if any(uid in self._nominations for uid in nomination.by_pod):  # with a pod that was of another gang before
            return
        reader = self._reader(pod)
        self._nominations.put(nomination)
        try:
            protected = await self._evictions.forbidden(victims)
            if protected is not None:
                known = reader.listed("pod", [protected.metadata.key])
                note = f"a PodDisruptionBudget forbids to evict {known} on node {protected.spec.node_name}"
                self._report(preemptor, pod, "PreemptionForbidden", note)
                self._abandon(nomination, "forbidden")
                return
            if not self._handle.leading():
                self._abandon(nomination, "failed")
                return
            await self._lifecycle.records.write(nomination)
        except ApiError as error:
            log.warning("a pod was not nominated, will try again", pod=pod.metadata.key, error=repr(error))
            self._abandon(nomination, "failed")
            return
        self._handle.observer.count(PREEMPTIONS, "nominated")
        log.info("nominated", pod=pod.metadata.key, node=found.node, victims=[v.metadata.key for v in victims])
        note = f"preempting {found.text(reader)}"
        for each in filter(None, map(self._view.pods.get, nomination.by_pod)):
            self._handle.ports.record_event(each, "Normal", "Preempting", note, action="Preempting")
        await self._lifecycle.begin(nomination, victims, sorted(preemptor.names))

    def _until(self, victims: Iterable[Pod]) -> float:
        """When a nomination for which these victims terminate ends at the latest."""
        config = self._view.config
        grace = max((config.grace_seconds(pod.spec.termination_grace_period_seconds) for pod in victims), default=0.0)
        return self._view.clock.monotonic() + grace + config.preemption_margin_seconds

    def _abandon(self, nomination: Nomination, result: PreemptionResult) -> None:
        """End a nomination before the first eviction."""
        self._nominations.drop(nomination.pod.metadata.uid)
        self._handle.observer.count(PREEMPTIONS, result)
        self._handle.requeue.improved()
        if result == "failed":  # the write may be stored all the same
            self._lifecycle.records.ended(nomination)

    async def _restore(self, pod: Pod) -> bool | None:
        """Nominate the pod again if it keeps its place: True if so, None as long as workers have not answered."""
        view, uid, node = self._view, pod.metadata.uid, pod.status.nominated_node_name
        waits = node and not pod.spec.node_name and not view.pods.is_terminating(uid)
        waits = waits and view.config.may_clear_for(pod.spec.scheduler_name)
        if not waits or any(each.is_for(pod) for each in self._nominations):
            return False
        found = await self._questions.restored(pod)
        if found is UNKNOWN:
            return None
        if found is None or uid not in found[1]:
            return False
        (claims, places), gang = found, gang_with_devices(view, pod)
        victims = tuple(dict.fromkeys(entry.uid for claim in claims for entry in claim.status.reserved_for))
        known = [victim for uid in victims if (victim := view.pods.get(uid)) is not None]
        self._nominations.put(
            Nomination(
                pod=pod,
                node=places[uid].node,
                nodes={each: place.node for each, place in places.items()} if gang is not None else {},
                victims=victims,
                plans=plans_of(places),
                until=self._until(known),
                claims=tuple(claim.metadata.uid for claim in claims),
            )
        )
        return True
