"""Which pods a pod should preempt, and on which node: kube-scheduler's preemption evaluator for devices.

Promises
- A question: it changes nothing. `PreemptionEvaluator` decides in turns; its answer holds for the state of the last
  turn, because the victims on the chosen node are worked out again then. For a pod of a gang see `gangs`.
- The evaluator finds no preemption when the pod fits on one of the nodes, will fit once terminating pods are gone, or
  waits for victims of its own; and none while a worker has to answer first for some node.
- An evaluation that needs more work than one call may do goes on in the next call, where it stopped.
- Work grows with the nodes and with the claims that have devices there. Nodes where freeing everything does not help
  are dropped first. Of the others, up to a limit, those are examined that can still be the best.

Rules: Kubernetes 1.36, pkg/scheduler/framework/preemption and PodEligibleToPreemptOthers of
plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from dra_extender.allocation.budget import SEARCHING, Deferred, TurnSpent
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, node_statuses, pre_filter, try_allocate
from dra_extender.scheduling.gangs.gang import gang_with_devices
from dra_extender.scheduling.preemption.candidates import Candidate, Scanned, scan, suited, without_claims
from dra_extender.scheduling.preemption.gangs import GangVictims, joint
from dra_extender.scheduling.preemption.preemptible import PreemptibleClaims, charge, is_stuck, preemptible_claims
from dra_extender.scheduling.preemption.terms import (
    FITS,
    HOPELESS,
    NEVER,
    UNKNOWN,
    WAITS,
    NoPreemption,
    Preemption,
    PreemptionTerms,
    Victim,
)
from dra_extender.scheduling.preemption.victims import PreemptionCost, Trials, cost, fewest
from dra_extender.scheduling.view import View

CHUNK: Final = 64
"""Nodes evaluated together at first; halved when a turn does not suffice."""
PODS: Final = 8
"""Pods examined per unit of work."""
CANDIDATES: Final = 100
"""Of nodes that seem equally good, victims are worked out on 100, or a tenth of all, as in kube-scheduler."""
WAITING: Final = "not eligible due to a terminating pod on the nominated node."
GANG_WAITS: Final = "the gang waits for pods that it has preempted to terminate"


class PreemptionEvaluator:
    """One question. Call `evaluate` until it does not raise TurnSpent, each time with the view of another turn. While
    it is `unfinished`, it can go on in another call, with the `terms` of that moment.
    """

    def __init__(self, terms: PreemptionTerms, nodes: Sequence[str]) -> None:
        self.terms = terms
        self.unfinished = False
        """The answer is `UNKNOWN` because the call has reached its work."""
        self._nodes = tuple(dict.fromkeys(nodes))
        self._suited: list[str] = []
        """The nodes for the pod of a gang."""
        self._position = 0
        self._chunk = CHUNK
        self._scanned: list[Scanned] = []
        self._ranked: list[Candidate] | None = None
        self._best: PreemptionCost | None = None
        self._trials = Trials()
        self._gang_victims = GangVictims()

    def evaluate(self, view: View) -> Preemption | NoPreemption:
        """Raises TurnSpent when another turn is needed."""
        try:
            return self._evaluate(view)
        except Deferred:
            return UNKNOWN
        finally:
            self.unfinished = view.decisions.budget.unfinished

    def _evaluate(self, view: View) -> Preemption | NoPreemption:
        gang = gang_with_devices(view, self.terms.preemptor)
        refused = _ineligible(view, self.terms, gang.waiting if gang is not None else ())
        if refused is not None:
            return refused
        prefiltered = pre_filter(view, self.terms.preemptor)
        if not isinstance(prefiltered, PreFilterState):
            reason = prefiltered.reason if isinstance(prefiltered, Unschedulable) else prefiltered.error
            return NoPreemption("refused", reason)
        if gang is not None:
            while self._position < len(self._nodes):
                names = self._nodes[self._position : self._position + CHUNK]
                self._suited += suited(view, self.terms, names)
                self._position += CHUNK
                view.decisions.budget.settle()
            return self._gang_victims.search(view, joint(view, prefiltered, self.terms, gang), self._suited)
        terms = self.terms.with_claims(prefiltered.order)
        fits = self._scan(view, prefiltered, terms)
        if fits:
            return NoPreemption("fits", FITS, fits)
        waits = next((each.waits for each in self._scanned if each.waits), "")
        if waits:
            return NoPreemption("waits", WAITS, waits)
        candidates = [candidate for each in self._scanned for candidate in each.candidates]
        if any(each.unknown or (each.doubtful and not candidates) for each in self._scanned):
            return UNKNOWN
        self._rank(view, prefiltered, terms, candidates)
        if self._best is None:
            return HOPELESS
        node = self._best[-1]
        found, victims = self._victims(view, prefiltered, terms, node)
        gone = found.freed_by({victim.pod.metadata.uid for victim in victims or ()})
        plan = try_allocate(without_claims(view, terms, gone), prefiltered, node)
        view.decisions.budget.settle()
        if not victims or not isinstance(plan, NodeAllocation) or not plan.pending:
            return UNKNOWN
        return Preemption(terms.preemptor, node, victims, tuple(zip(plan.pending, plan.allocations, strict=True)))

    def _scan(self, view: View, prefiltered: PreFilterState, terms: PreemptionTerms) -> str:
        """Scan the nodes. Returns a node where the pod fits already, or an empty string."""
        while self._position < len(self._nodes):
            names = self._nodes[self._position : self._position + self._chunk]
            try:
                found = scan(view, prefiltered, terms, suited(view, terms, names))
                if view.decisions.budget.unfinished:  # nodes are then refused that were not decided on
                    raise Deferred(SEARCHING)
            except (TurnSpent, Deferred):
                self._chunk = max(1, self._chunk // 2)
                raise
            if found.fits:
                return found.fits
            self._scanned.append(found)
            self._position += len(names)
            view.decisions.budget.settle()
        return ""

    def _rank(
        self, view: View, prefiltered: PreFilterState, terms: PreemptionTerms, candidates: Sequence[Candidate]
    ) -> None:
        """Work out the victims on the candidates that can still be the best."""
        if self._ranked is None:
            most = max(CANDIDATES, len(self._nodes) // 10)
            self._ranked = sorted(candidates, reverse=True)[-most:]
        while self._ranked:
            *least, node = self._ranked[-1]
            if self._best is not None and tuple(least) > self._best[:2]:
                break
            _, victims = self._victims(view, prefiltered, terms, node)
            if victims:
                found = cost(node, victims)
                self._best = found if self._best is None else min(found, self._best)
            self._ranked.pop()

    def _victims(
        self, view: View, prefiltered: PreFilterState, terms: PreemptionTerms, node: str
    ) -> tuple[PreemptibleClaims, tuple[Victim, ...] | None]:
        """The preemptible claims on the node, and the fewest victims there; None when preemption does not help there or
        is forbidden.
        """

        def fits(gone: Collection[ResourceClaim]) -> bool:
            statuses = node_statuses(without_claims(view, terms, gone), prefiltered, (node,))
            if view.decisions.budget.unfinished:
                raise Deferred(SEARCHING)
            view.decisions.budget.settle()
            return bool(statuses.fits)

        found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(node))
        return found, fewest(found, terms, fits, self._trials.on(view, terms, node))


def _ineligible(view: View, terms: PreemptionTerms, gang: Sequence[Pod]) -> NoPreemption | None:
    """Why the pod must not preempt now; None when it may. `gang`: the pods that preempt together with it. On its
    nominated node the pod may lack more than devices: kube-scheduler is then preempting there, and does not ask about
    that node.
    """
    preemptor = terms.preemptor
    if any(pod.spec.preemption_policy == NEVER for pod in (preemptor, *gang)):
        return NoPreemption("never", "not eligible due to preemptionPolicy=Never.")
    lowest = view.pods.lowest_priority
    if lowest is None or lowest >= preemptor.spec.priority:
        return NoPreemption("never", "no pod has a lower priority")
    nominated = {pod.status.nominated_node_name for pod in (preemptor, *gang)} - {""}
    if nominated:
        charge(view, len(view.pods) // PODS)
    for pod in view.pods if nominated else ():
        leaves = pod.spec.node_name in nominated and pod.metadata.deletion_timestamp
        if leaves and pod.spec.priority < preemptor.spec.priority and not is_stuck(view, terms, pod):
            return NoPreemption("nominated", GANG_WAITS if gang else WAITING, preemptor.status.nominated_node_name)
    return None
