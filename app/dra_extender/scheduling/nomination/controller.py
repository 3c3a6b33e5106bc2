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
from itertools import chain

import msgspec
import structlog

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod, PodDisruptionBudget
from dra_extender.api.errors import ApiError
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.nomination.lifecycle import Evictions, NominationLifecycle
from dra_extender.scheduling.nomination.nominations import Nomination, Nominations, is_preempting
from dra_extender.scheduling.nomination.preemptors import Preemptor, Preemptors
from dra_extender.scheduling.outcomes import PREEMPTIONS, PreemptionResult
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace
from dra_extender.scheduling.preemption.candidates import plan_without
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.preemptible import preemptible_claims
from dra_extender.scheduling.preemption.terms import NoPreemption, Preemption, PreemptionArgs, PreemptionTerms
from dra_extender.scheduling.reader import Reader
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

_NO_RESULT: dict[str, PreemptionResult] = {"fits": "needless", "waits": "needless", "unknown": "waiting"}


class PreemptionController:
    """`restore` when this replica begins to lead, then `work` about once a second."""

    def __init__(
        self,
        handle: Handle,
        nominations: Nominations,
        budgets: Mapping[str, Mapping[str, PodDisruptionBudget]],
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

    def refused(self, pod: Pod, names: Iterable[str]) -> None:
        """Filter has refused the pod on all of these nodes, where it lacks nothing but devices."""
        listed = tuple(names)
        only_nominated = bool(pod.status.nominated_node_name) and listed == (pod.status.nominated_node_name,)
        lowest = self._view.pods.lowest_priority
        if only_nominated or not listed or lowest is None or lowest >= pod.spec.priority:
            return
        self._preemptors.put(pod.metadata.uid, listed, self._handle.requeue.revision)

    def answered(self, pod_uid: str) -> None:
        """The verb preempt has answered kube-scheduler: the pod will soon show whether it preempts."""
        preemptor = self._preemptors.get(pod_uid)
        if preemptor is not None:
            self._preemptors.consider(preemptor, again=True)

    def withdraw(self, pod_uid: str) -> None:
        """The pod fits somewhere, is bound, or is gone."""
        self._preemptors.drop(pod_uid)

    def pod_applied(self, pod: Pod) -> None:
        """The watch shows a pod. Remove a condition without a nomination: our write was stored late."""
        if self._restored and is_preempting(pod) and pod.metadata.uid not in self._nominations:
            self._lifecycle.records.erase(pod.metadata.uid, pod.status.nominated_node_name)

    def terms(self, pod: Pod) -> PreemptionTerms:
        """The terms on which the pod may preempt others now. The view knows what is kept for other pods."""
        args = PreemptionArgs(scheduler_names=self._view.config.scheduler_names, violate_budgets=False)
        victims = (each.victims for each in self._nominations if each.pod.metadata.uid != pod.metadata.uid)
        return PreemptionTerms(
            preemptor=pod,
            args=args,
            budgets=BudgetsByNamespace(self._budgets),
            terminating=frozenset(chain.from_iterable(victims)),
            stuck=self._evictions.stuck,
            spared=self._evictions.refused,
        )

    async def restore(self) -> None:
        """Continue with the nominations of the previous leader, by priority."""
        self._restored = False
        self._nominations.clear()
        for pod in sorted(filter(is_preempting, self._view.pods), key=lambda pod: -pod.spec.priority):
            await self._restore(pod)
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
        args = msgspec.structs.replace(terms.args, violate_budgets=True)
        terms = msgspec.structs.replace(terms, args=args, examined={})
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
            victims=tuple(victim.metadata.uid for victim in victims),
            plans=found.plans,
            until=self._until(victims),
            claims=tuple(dict.fromkeys(claim.metadata.uid for victim in found.victims for claim in victim.claims)),
            devices=found.needed(),
        )
        reader = self._reader(pod)
        self._nominations.put(nomination)
        try:
            protected = await self._evictions.forbidden(victims)
            if protected is not None:
                known = reader.listed("pod", [protected.metadata.key])
                note = f"a PodDisruptionBudget forbids to evict {known} on node {found.node}"
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
        self._handle.ports.record_event(
            pod, "Normal", "Preempting", f"preempting {found.text(reader)}", action="Preempting"
        )
        await self._lifecycle.begin(nomination, victims, sorted(preemptor.names))

    def _until(self, victims: Iterable[Pod]) -> float:
        """When a nomination for which these victims terminate ends at the latest."""
        config = self._view.config
        grace = max((config.grace_seconds(pod.spec.termination_grace_period_seconds) for pod in victims), default=0.0)
        return self._view.clock.monotonic() + grace + config.preemption_margin_seconds

    def _abandon(self, nomination: Nomination, result: PreemptionResult) -> None:
        """End a nomination before the first eviction."""
        uid = nomination.pod.metadata.uid
        self._nominations.drop(uid)
        self._handle.observer.count(PREEMPTIONS, result)
        self._handle.requeue.improved()
        if result == "failed":  # the write may be stored all the same
            self._lifecycle.records.erase(uid, nomination.node)

    async def _restore(self, pod: Pod) -> None:
        view, uid, node = self._view, pod.metadata.uid, pod.status.nominated_node_name
        waits = node and not pod.spec.node_name and not view.pods.is_terminating(uid)
        if waits and view.config.may_clear_for(pod.spec.scheduler_name):
            terms = self.terms(pod)
            found, _ = await self._handle.deferred.decide(pod, lambda view: restored(view, terms, node))
            if found is not None:
                claims, plans = found
                victims = tuple(dict.fromkeys(entry.uid for claim in claims for entry in claim.status.reserved_for))
                known = [victim for uid in victims if (victim := view.pods.get(uid)) is not None]
                self._nominations.put(
                    Nomination(
                        pod=pod,
                        node=node,
                        victims=victims,
                        plans=plans,
                        until=self._until(known),
                        claims=tuple(claim.metadata.uid for claim in claims),
                    )
                )
                log.info("restored a nomination", pod=pod.metadata.key, node=node, victims=len(known))
                return
        self._lifecycle.records.erase(uid, node)


def restored(
    view: View, terms: PreemptionTerms, node: str
) -> tuple[tuple[ResourceClaim, ...], tuple[Planned, ...]] | None:
    """The claims of terminating pods on the node, and the plans to keep. None when nothing is to be kept for the pod
    there, or this cannot be decided now. Raises TurnSpent.
    """
    if not terms.may_preempt or terms.preemptor.spec.scheduling_gates:
        return None
    prefiltered = pre_filter(view, terms.preemptor)
    if not isinstance(prefiltered, PreFilterState):
        return None
    terms = terms.with_claims(prefiltered.order)
    try:
        found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(node))
        plans = plan_without(view, prefiltered, terms, node, found.terminating)
    except Deferred:
        return None
    return (found.terminating, plans) if plans else None
