"""Who makes room: pods that were refused everywhere for want of devices take those of pods with lower priority.

Promises
- One pod after the other, by priority, then by how long it waits; each decision in counted turns of the event loop.
- From the moment of the choice the devices are kept for the pod; the nomination is stored before the first victim goes,
  and none goes unless all are allowed to at that moment.
- In the mode `advise` the same is found and said, and nothing is done.
- After a restart, or when another replica takes over, what pods say of their nominations is what goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.disruptionbudgets import DisruptionBudgets
from dra_extender.scheduling.nomination.evictions import Evictions
from dra_extender.scheduling.nomination.marks import Marks
from dra_extender.scheduling.nomination.nominations import MARK, Mark, Nomination, Nominations, mark_of
from dra_extender.scheduling.nomination.preemptors import Preemptor, Preemptors
from dra_extender.scheduling.nomination.presentterms import PresentTerms
from dra_extender.scheduling.nomination.resumption import grace_seconds, resumption, seconds_left
from dra_extender.scheduling.nomination.tending import Tending
from dra_extender.scheduling.outcomes import PREEMPTIONS, PreemptionResult
from dra_extender.scheduling.ports import Observer, Ports
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.result import NoPreemption, Preemption
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

_NO_RESULT: dict[str, PreemptionResult] = {"fits": "needless", "waits": "needless", "unknown": "waiting"}


class Nominator:
    """`restore` when this replica begins to lead, `work` about once a second from then on."""

    def __init__(
        self,
        view: View,
        ports: Ports,
        nominations: Nominations,
        budgets: DisruptionBudgets,
        deferred: DeferredWork,
        clearer: Clearer,
        requeue: RequeueTrigger,
        observer: Observer,
        leading: Callable[[], bool],
    ) -> None:
        self._view = view
        self._ports = ports
        self._nominations = nominations
        self._deferred = deferred
        self._requeue = requeue
        self._observer = observer
        self._leading = leading
        self._marks = Marks(view, ports)
        self._evictions = Evictions(view, ports, observer)
        self._terms = PresentTerms(view, nominations, budgets, self._evictions)
        self._preemptors = Preemptors(view.clock, view.config)
        self._tending = Tending(
            view,
            nominations,
            self._preemptors,
            self._terms,
            self._marks,
            self._evictions,
            deferred,
            clearer,
            requeue,
            ports,
            observer,
            leading,
        )
        self._restored = False

    @property
    def stuck(self) -> int:
        """How many victims were told to go long ago and are still there."""
        return len(self._evictions.stuck)

    # --- who needs room ---------------------------------------------------------------------------------------------

    def refused(self, pod: Pod, names: Iterable[str]) -> None:
        """A filter has refused the pod on all of these nodes; on them it lacks nothing but devices."""
        listed = tuple(names)
        probe = bool(pod.status.nominated_node_name) and listed == (pod.status.nominated_node_name,)
        lowest = self._view.pods.lowest_priority
        if probe or not listed or lowest is None or lowest >= pod.spec.priority:
            return
        if self._view.config.may_clear_for(pod.spec.scheduler_name):
            self._preemptors.put(pod.metadata.uid, listed, self._requeue.generation)

    def left(self, pod_uid: str) -> None:
        """kube-scheduler has been told where it may make room for the pod: what comes of it shows on the pod soon."""
        preemptor = self._preemptors.get(pod_uid)
        if preemptor is not None:
            self._preemptors.consider(preemptor, again=True)

    def withdraw(self, pod_uid: str) -> None:
        """The pod fits somewhere, is bound, or is gone."""
        self._preemptors.drop(pod_uid)

    def seen(self, pod: Pod) -> None:
        """A version of a pod. One that says it is nominated and is not: what we have written has arrived late."""
        if MARK in pod.metadata.annotations and self._restored and pod.metadata.uid not in self._nominations:
            mark = mark_of(pod)
            self._marks.erase(pod.metadata.uid, mark.node if mark is not None else "")

    def terms(self, pod: Pod) -> PreemptionTerms:
        """On what terms the pod may preempt others at this moment."""
        return self._terms.of(pod)

    # --- work -------------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Go on with the nominations of whoever led before."""
        self._restored = False
        self._nominations.clear()
        for pod in self._view.pods:
            if MARK in pod.metadata.annotations:
                await self._restore(pod, mark_of(pod))
        self._restored = True

    async def work(self) -> None:
        """Look after those that are nominated, then think about those that may be."""
        await self._tend()
        tended = self._view.clock.monotonic()
        for preemptor in self._preemptors.due(self._view.pods):
            await self._consider(preemptor)
            await asyncio.sleep(0)  # a decision that is known already takes no turn of its own
            if self._view.clock.monotonic() - tended >= 1.0:
                await self._tend()
                tended = self._view.clock.monotonic()

    async def _tend(self) -> None:
        if self._leading():
            await self._tending.work()
            await self._marks.work()

    async def _consider(self, preemptor: Preemptor) -> None:
        view, uid = self._view, preemptor.uid
        pod = view.pods.get(uid)
        if pod is None or pod.spec.node_name or view.pods.leaving(uid):
            self._preemptors.drop(uid)
            return
        if uid in self._nominations or uid in view.binding or not self._leading():
            return
        terms = self.terms(pod)
        found, _ = await self._deferred.decide(pod, PreemptionEvaluator(terms, preemptor.nodes(terms.stuck)).evaluate)
        again = isinstance(found, NoPreemption) and found.why in ("waits", "unknown", "fits", "nominated")
        self._preemptors.consider(preemptor, again=again)
        if isinstance(found, NoPreemption):
            self._observer.count(PREEMPTIONS, _NO_RESULT.get(found.why, "hopeless"))
            if found.why == "hopeless" and terms.budgets:
                await self._say_whom_budgets_keep(preemptor, pod, terms)
        elif view.config.preemption == "advise":
            self._observer.count(PREEMPTIONS, "advised")
            self._say(preemptor, pod, "WouldPreempt", f"would preempt {found.text}")
        else:
            await self._nominate(preemptor, found)

    def _say(self, preemptor: Preemptor, pod: Pod, reason: str, note: str) -> None:
        """Once, until there is something else to say."""
        if preemptor.said != note:
            preemptor.said = note
            self._ports.record_event(
                pod, "Normal" if reason == "WouldPreempt" else "Warning", reason, note, action="Preempting"
            )

    async def _say_whom_budgets_keep(self, preemptor: Preemptor, pod: Pod, terms: PreemptionTerms) -> None:
        args = msgspec.structs.replace(terms.args, violate_budgets=True)
        search = PreemptionEvaluator(msgspec.structs.replace(terms, args=args), preemptor.nodes(terms.stuck))
        found, _ = await self._deferred.decide(pod, search.evaluate)
        if isinstance(found, Preemption):
            note = f"a PodDisruptionBudget forbids to preempt {found.text}"
            self._say(preemptor, pod, "PreemptionForbidden", note)

    # --- to act -----------------------------------------------------------------------------------------------------

    async def _nominate(self, preemptor: Preemptor, found: Preemption) -> None:
        """Keep the devices, make sure that all victims may go, store the nomination, tell them to go."""
        nomination = self._nomination(found)
        pod, victims = nomination.pod, [victim.pod for victim in found.victims]
        self._nominations.put(nomination)
        try:
            kept = await self._evictions.forbidden(victims)
            if kept is not None:
                note = f"a PodDisruptionBudget forbids to evict pod {kept.metadata.key} on node {found.node}"
                self._say(preemptor, pod, "PreemptionForbidden", note)
                self._abandon(nomination, "forbidden")
                return
            if not self._leading():
                self._abandon(nomination, "failed")
                return
            await self._marks.write(nomination)
        except ApiError as error:
            log.warning("a pod was not nominated, will try again", pod=pod.metadata.key, error=repr(error))
            self._abandon(nomination, "failed")
            return
        self._observer.count(PREEMPTIONS, "nominated")
        log.info("nominated", pod=pod.metadata.key, node=found.node, victims=[v.metadata.key for v in victims])
        note = f"preempting {found.text}"
        self._ports.record_event(pod, "Normal", "Preempting", note, action="Preempting")
        await self._tending.begin(nomination, victims, sorted(preemptor.names))

    def _nomination(self, found: Preemption) -> Nomination:
        config = self._view.config
        grace = max(grace_seconds(victim.pod) for victim in found.victims)
        return Nomination(
            pod=found.preemptor,
            node=found.node,
            victims=tuple(victim.pod.metadata.uid for victim in found.victims),
            plans=found.plans,
            until=self._view.clock.monotonic() + grace + config.preemption_margin_seconds,
            claims=tuple(dict.fromkeys(claim.metadata.uid for victim in found.victims for claim in victim.claims)),
            devices={victim.pod.metadata.uid: found.needed(victim) for victim in found.victims},
        )

    def _abandon(self, nomination: Nomination, result: PreemptionResult) -> None:
        """Before anybody went."""
        uid = nomination.pod.metadata.uid
        self._nominations.drop(uid)
        self._observer.count(PREEMPTIONS, result)
        self._requeue.improved()
        if result == "failed":  # what was sent may be stored
            self._marks.erase(uid, nomination.node)

    # --- after a restart --------------------------------------------------------------------------------------------

    async def _restore(self, pod: Pod, mark: Mark | None) -> None:
        view, uid = self._view, pod.metadata.uid
        if mark is not None and not pod.spec.node_name and view.config.may_clear_for(pod.spec.scheduler_name):
            victims = [victim for victim_uid in mark.victims if (victim := view.pods.get(victim_uid)) is not None]
            left, terms = seconds_left(view, mark, victims), self.terms(pod)
            found, _ = await self._deferred.decide(pod, lambda view: resumption(view, pod, mark, terms))
            if left > 0 and found is not None and not view.pods.leaving(uid):
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
                log.info("goes on with a nomination", pod=pod.metadata.key, node=mark.node, victims=len(victims))
                return
        self._marks.erase(uid, mark.node if mark is not None else "")
