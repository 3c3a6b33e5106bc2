"""The controller of preemption: pods that filter refused everywhere for want of devices preempt pods of lower priority.

Promises
- Pods are handled one after the other, by priority, then by how long they have waited.
- The devices are kept for the pod from the moment of the choice. The nomination is stored before the first victim is
  evicted, and no victim is evicted unless the API server would allow all evictions at that moment.
- In mode `advise` the same choice is made and reported, and nothing else happens.
- After a restart or a change of leader the marks on pods are restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nomination.evictions import Evictions
from dra_extender.scheduling.nomination.lifecycle import NominationLifecycle
from dra_extender.scheduling.nomination.nominations import MARK, Mark, Nomination, Nominations, mark_of
from dra_extender.scheduling.nomination.preemptors import Preemptor, Preemptors
from dra_extender.scheduling.nomination.restore import grace_seconds, restored, seconds_left
from dra_extender.scheduling.outcomes import PREEMPTIONS, PreemptionResult
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.result import NoPreemption, Preemption
from dra_extender.scheduling.preemption.terms import PreemptionArgs, PreemptionTerms
from dra_extender.scheduling.release.clear import Clearer

log = structlog.get_logger(__name__)

_NO_RESULT: dict[str, PreemptionResult] = {"fits": "needless", "waits": "needless", "unknown": "waiting"}


class PreemptionController:
    """`restore` when this replica begins to lead, then `work` about once a second."""

    def __init__(
        self,
        handle: Handle,
        nominations: Nominations,
        budgets: Mapping[str, PodDisruptionBudget],
        clearer: Clearer,
    ) -> None:
        self._view = handle.view
        self._handle = handle
        self._nominations = nominations
        self._budgets = budgets
        self._evictions = Evictions(handle.view, handle.ports, handle.observer)
        self._preemptors = Preemptors(handle.view.clock, handle.view.config)
        self._lifecycle = NominationLifecycle(
            handle, nominations, self._preemptors, self._evictions, clearer, self.terms
        )
        self._restored = False

    @property
    def stuck(self) -> int:
        """How many victims were evicted long ago and are still there."""
        return len(self._evictions.stuck)

    # --- which pods may preempt -------------------------------------------------------------------------------------

    def refused(self, pod: Pod, names: Iterable[str]) -> None:
        """Filter has refused the pod on all of these nodes, where it lacks nothing but devices."""
        listed = tuple(names)
        only_nominated = bool(pod.status.nominated_node_name) and listed == (pod.status.nominated_node_name,)
        lowest = self._view.pods.lowest_priority
        if only_nominated or not listed or lowest is None or lowest >= pod.spec.priority:
            return
        if self._view.config.may_clear_for(pod.spec.scheduler_name):
            self._preemptors.put(pod.metadata.uid, listed, self._handle.requeue.generation)

    def answered(self, pod_uid: str) -> None:
        """The verb preempt has answered kube-scheduler: the pod will soon show whether it preempts."""
        preemptor = self._preemptors.get(pod_uid)
        if preemptor is not None:
            self._preemptors.consider(preemptor, again=True)

    def withdraw(self, pod_uid: str) -> None:
        """The pod fits somewhere, is bound, or is gone."""
        self._preemptors.drop(pod_uid)

    def seen(self, pod: Pod) -> None:
        """The watch shows a pod. A mark without a nomination is a write of ours that was stored late: remove it."""
        if MARK in pod.metadata.annotations and self._restored and pod.metadata.uid not in self._nominations:
            mark = mark_of(pod)
            self._lifecycle.records.erase(pod.metadata.uid, mark.node if mark is not None else "")

    def terms(self, pod: Pod) -> PreemptionTerms:
        """The terms on which the pod may preempt others now. The view knows what is kept for other pods."""
        args = PreemptionArgs(scheduler_names=self._view.config.scheduler_names, violate_budgets=False)
        victims = (each.victims for each in self._nominations if each.pod.metadata.uid != pod.metadata.uid)
        return PreemptionTerms(
            preemptor=pod,
            args=args,
            budgets=tuple(self._budgets.values()),
            terminating=frozenset(chain.from_iterable(victims)),
            stuck=self._evictions.stuck,
            spared=self._evictions.refused,
        )

    # --- work -------------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Continue with the nominations of the previous leader."""
        self._restored = False
        self._nominations.clear()
        for pod in self._view.pods:
            if MARK in pod.metadata.annotations:
                await self._restore(pod, mark_of(pod))
        self._restored = True

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
        if pod is None or pod.spec.node_name or view.pods.is_terminating(uid):
            self._preemptors.drop(uid)
            return
        if uid in self._nominations or uid in view.binding or not self._handle.leading():
            return
        terms = self.terms(pod)
        evaluator = PreemptionEvaluator(terms, preemptor.nodes(terms.stuck))
        found, _ = await self._handle.deferred.decide(pod, evaluator.evaluate)
        again = isinstance(found, NoPreemption) and found.why in ("waits", "unknown", "fits", "nominated")
        self._preemptors.consider(preemptor, again=again)
        if isinstance(found, NoPreemption):
            self._handle.observer.count(PREEMPTIONS, _NO_RESULT.get(found.why, "hopeless"))
            if found.why == "hopeless" and terms.budgets:
                await self._report_budgets(preemptor, pod, terms)
        elif view.config.preemption == "advise":
            self._handle.observer.count(PREEMPTIONS, "advised")
            self._report(preemptor, pod, "WouldPreempt", f"would preempt {found.text}")
        else:
            await self._nominate(preemptor, found)

    def _report(self, preemptor: Preemptor, pod: Pod, reason: str, note: str) -> None:
        """Record an event, unless the last one said the same."""
        if preemptor.said != note:
            preemptor.said = note
            self._handle.ports.record_event(
                pod, "Normal" if reason == "WouldPreempt" else "Warning", reason, note, action="Preempting"
            )

    async def _report_budgets(self, preemptor: Preemptor, pod: Pod, terms: PreemptionTerms) -> None:
        """Report when preemption would help but for budgets."""
        args = msgspec.structs.replace(terms.args, violate_budgets=True)
        evaluator = PreemptionEvaluator(msgspec.structs.replace(terms, args=args), preemptor.nodes(terms.stuck))
        found, _ = await self._handle.deferred.decide(pod, evaluator.evaluate)
        if isinstance(found, Preemption):
            note = f"a PodDisruptionBudget forbids to preempt {found.text}"
            self._report(preemptor, pod, "PreemptionForbidden", note)

    # --- act --------------------------------------------------------------------------------------------------------

    async def _nominate(self, preemptor: Preemptor, found: Preemption) -> None:
        """Keep the devices, check that all evictions are allowed, store the nomination, evict."""
        nomination = self._nomination(found)
        pod, victims = nomination.pod, [victim.pod for victim in found.victims]
        self._nominations.put(nomination)
        try:
            protected = await self._evictions.forbidden(victims)
            if protected is not None:
                note = f"a PodDisruptionBudget forbids to evict pod {protected.metadata.key} on node {found.node}"
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
        self._handle.ports.record_event(pod, "Normal", "Preempting", f"preempting {found.text}", action="Preempting")
        await self._lifecycle.begin(nomination, victims, sorted(preemptor.names))

    def _nomination(self, found: Preemption) -> Nomination:
        grace = max(grace_seconds(victim.pod) for victim in found.victims)
        seconds = grace + self._view.config.preemption_margin_seconds
        return Nomination(
            pod=found.preemptor,
            node=found.node,
            victims=tuple(victim.pod.metadata.uid for victim in found.victims),
            plans=found.plans,
            until=self._view.clock.monotonic() + seconds,
            claims=tuple(dict.fromkeys(claim.metadata.uid for victim in found.victims for claim in victim.claims)),
            devices={victim.pod.metadata.uid: found.needed(victim) for victim in found.victims},
        )

    def _abandon(self, nomination: Nomination, result: PreemptionResult) -> None:
        """End a nomination before the first eviction."""
        uid = nomination.pod.metadata.uid
        self._nominations.drop(uid)
        self._handle.observer.count(PREEMPTIONS, result)
        self._handle.requeue.improved()
        if result == "failed":  # the write may be stored all the same
            self._lifecycle.records.erase(uid, nomination.node)

    # --- after a restart --------------------------------------------------------------------------------------------

    async def _restore(self, pod: Pod, mark: Mark | None) -> None:
        view, uid = self._view, pod.metadata.uid
        if mark is not None and not pod.spec.node_name and view.config.may_clear_for(pod.spec.scheduler_name):
            victims = [victim for victim_uid in mark.victims if (victim := view.pods.get(victim_uid)) is not None]
            left, terms = seconds_left(view, mark, victims), self.terms(pod)
            found, _ = await self._handle.deferred.decide(pod, lambda view: restored(view, pod, mark, terms))
            if left > 0 and found is not None and not view.pods.is_terminating(uid):
                self._nominations.put(
                    Nomination(
                        pod=pod,
                        node=mark.node,
                        victims=found.victims,
                        plans=found.plans,
                        until=view.clock.monotonic() + left,
                        claims=found.claims,
                    )
                )
                log.info("restored a nomination", pod=pod.metadata.key, node=mark.node, victims=len(victims))
                return
        self._lifecycle.records.erase(uid, mark.node if mark is not None else "")
