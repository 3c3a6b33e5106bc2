"""Which pods a pod should preempt, and on which node: kube-scheduler's preemption evaluator for devices.

Promises
- A question: it changes nothing. `find_preemption` decides on one state. `PreemptionEvaluator` decides in turns; its
  answer holds for the state of the last turn, because the victims on the chosen node are worked out again then.
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
from operator import is_
from typing import Final

from dra_extender.allocation.budget import SEARCHING, Deferred, TurnSpent
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.preemption.candidates import Candidate, plan_without, scan, statuses_without
from dra_extender.scheduling.preemption.preemptible import PreemptibleClaims, charge, is_stuck, preemptible_claims
from dra_extender.scheduling.preemption.terms import NoPreemption, Preemption, PreemptionArgs, PreemptionTerms, Victim
from dra_extender.scheduling.preemption.victims import Fits, PreemptionCost, Trials, cost, fewest
from dra_extender.scheduling.view import View

CHUNK: Final = 64
"""Nodes evaluated together at first; halved when a turn does not suffice."""
PODS: Final = 8
"""Pods examined per unit of work."""

NEVER = NoPreemption("never", "not eligible due to preemptionPolicy=Never.")
NOBODY_LOWER = NoPreemption("never", "no pod has a lower priority")
NOMINATED = "not eligible due to a terminating pod on the nominated node."
FITS = "the devices fit already"
WAITS = "the devices fit once terminating pods are gone"
HOPELESS = NoPreemption("hopeless", "evicting pods of lower priority does not free the devices")
UNKNOWN = NoPreemption("unknown", "the evaluation is not complete yet")


def find_preemption(
    view: View,
    preemptor: Pod,
    nodes: Sequence[str],
    *,
    args: PreemptionArgs = PreemptionArgs(),  # frozen
    stuck: Collection[str] = (),
) -> Preemption | NoPreemption:
    """The preemption that costs least. `nodes`: where the pod lacks nothing but devices. See `PreemptionTerms` for the
    other parameters. Devices that the view keeps for other pods count as in use.
    """
    terms = PreemptionTerms(preemptor=preemptor, args=args, stuck=frozenset(stuck))
    return PreemptionEvaluator(terms, nodes).evaluate(view)


class NodeAnswers:
    """The decisions of earlier turns about one node; dropped when the state of the node changes."""

    def __init__(self) -> None:
        self._state: tuple[object, ...] = ()
        self._answers = Trials()

    def on(self, view: View, terms: PreemptionTerms, node: str) -> Trials:
        """The answers for the node in its present state; the caller adds to them."""
        inventory = view.cluster.inventory
        kept = (allocation for _, allocation in view.kept(terms.preemptor))
        state = inventory.view(node), *map(view.ledger.holdings, inventory.pools_seen(node)), *kept
        if len(state) != len(self._state) or not all(map(is_, state, self._state)):
            self._state, self._answers = state, Trials()
        return self._answers


class PreemptionEvaluator:
    """One question. Call `evaluate` until it does not raise TurnSpent, each time with the view of another turn. While
    it is `unfinished`, it can go on in another call, with the `terms` of that moment.
    """

    def __init__(self, terms: PreemptionTerms, nodes: Sequence[str]) -> None:
        self.terms = terms
        self.unfinished = False
        """The answer is `UNKNOWN` because the call has reached its work."""
        self._nodes = tuple(dict.fromkeys(nodes))
        self._position = 0
        self._chunk = CHUNK
        self._waits = ""
        self._unknown = False
        self._doubtful = False
        self._candidates: list[Candidate] = []
        self._ranked: list[Candidate] | None = None
        self._best: PreemptionCost | None = None
        self._answers = NodeAnswers()
        self._final_answers = NodeAnswers()

    def evaluate(self, view: View) -> Preemption | NoPreemption:
        """Raises TurnSpent when another turn is needed."""
        try:
            return self._evaluate(view)
        except Deferred:
            return UNKNOWN
        finally:
            self.unfinished = view.decisions.budget.unfinished

    def _evaluate(self, view: View) -> Preemption | NoPreemption:
        refused = ineligible(view, self.terms)
        if refused is not None:
            return refused
        prefiltered = pre_filter(view, self.terms.preemptor)
        if not isinstance(prefiltered, PreFilterState):
            reason = prefiltered.reason if isinstance(prefiltered, Unschedulable) else prefiltered.error
            return NoPreemption("refused", reason)
        terms = self.terms.with_claims(prefiltered.order)
        fits = self._scan(view, prefiltered, terms)
        if fits:
            return NoPreemption("fits", FITS, fits)
        if self._waits:
            return NoPreemption("waits", WAITS, self._waits)
        if self._unknown or (self._doubtful and not self._candidates):
            return UNKNOWN
        self._rank(view, prefiltered, terms)
        if self._best is None:
            return HOPELESS
        return _preemption(view, prefiltered, terms, self._best[-1], self._final_answers) or UNKNOWN

    def _scan(self, view: View, prefiltered: PreFilterState, terms: PreemptionTerms) -> str:
        """Collect the candidates. Returns a node where the pod fits already, or an empty string."""
        while self._position < len(self._nodes):
            names = self._nodes[self._position : self._position + self._chunk]
            try:
                found = scan(view, prefiltered, terms, names)
                _check_finished(view)
            except (TurnSpent, Deferred):
                self._chunk = max(1, self._chunk // 2)
                raise
            if found.fits:
                return found.fits
            self._waits = self._waits or found.waits
            self._unknown = self._unknown or found.unknown
            self._doubtful = self._doubtful or found.doubtful
            self._candidates += found.candidates
            self._position += len(names)
            view.decisions.budget.settle()
        return ""

    def _rank(self, view: View, prefiltered: PreFilterState, terms: PreemptionTerms) -> None:
        """Work out the victims on the candidates that can still be the best."""
        if self._ranked is None:
            most = terms.args.most_candidates(len(self._nodes))
            self._ranked = sorted(self._candidates, key=_least_cost, reverse=True)[-most:]
        while self._ranked:
            candidate = self._ranked[-1]
            if self._best is not None and _least_cost(candidate)[:2] > self._best[:2]:
                break
            victims = _victims(view, prefiltered, terms, candidate.node, self._answers)
            if victims:
                found = cost(candidate.node, victims)
                self._best = found if self._best is None else min(found, self._best)
            self._ranked.pop()


def _check_finished(view: View) -> None:
    """Raises Deferred if the call has reached its work: nodes are then refused that were not decided on."""
    if view.decisions.budget.unfinished:
        raise Deferred(SEARCHING)


def ineligible(view: View, terms: PreemptionTerms) -> NoPreemption | None:
    """Why the pod must not preempt now; None when it may. On its nominated node the pod may lack more than devices:
    kube-scheduler is then preempting there, and does not ask about that node.
    """
    preemptor = terms.preemptor
    if not terms.may_preempt:
        return NEVER
    lowest = view.pods.lowest_priority
    if lowest is None or lowest >= preemptor.spec.priority:
        return NOBODY_LOWER
    if _awaits_victims(view, terms):
        return NoPreemption("nominated", NOMINATED, preemptor.status.nominated_node_name)
    return None


def keeps_place(view: View, terms: PreemptionTerms, node: str) -> bool:
    """True while the pod needs no further eviction on the node: it fits there, will fit once terminating pods are gone,
    or this cannot be decided now. False for a pod whose claims cannot be decided on. Raises TurnSpent.
    """
    try:
        prefiltered = pre_filter(view, terms.preemptor)
        if not isinstance(prefiltered, PreFilterState):
            return False
        found = scan(view, prefiltered, terms.with_claims(prefiltered.order), (node,))
    except Deferred:
        return True
    return bool(found.fits or found.waits or found.unknown)


def _awaits_victims(view: View, terms: PreemptionTerms) -> bool:
    """True when pods of lower priority are terminating on the preemptor's nominated node."""
    nominated = terms.preemptor.status.nominated_node_name
    if not nominated:
        return False
    charge(view, len(view.pods) // PODS)
    return any(_is_victim(view, terms, pod, nominated) for pod in view.pods)


def _is_victim(view: View, terms: PreemptionTerms, pod: Pod, node: str) -> bool:
    return (
        pod.spec.node_name == node
        and bool(pod.metadata.deletion_timestamp)
        and pod.spec.priority < terms.preemptor.spec.priority
        and not is_stuck(view, terms, pod)
    )


def _least_cost(candidate: Candidate) -> tuple[int, int, str]:
    """A lower bound of the cost of preemption on the node."""
    return candidate.violations, candidate.priority, candidate.node


def _victims(
    view: View, prefiltered: PreFilterState, terms: PreemptionTerms, node: str, answers: NodeAnswers
) -> tuple[Victim, ...] | None:
    """The fewest victims on the node; None when preemption does not help there or is forbidden."""

    def fits(gone: Collection[ResourceClaim]) -> bool:
        statuses = statuses_without(view, prefiltered, terms, (node,), gone)
        _check_finished(view)
        view.decisions.budget.settle()
        return bool(statuses.fits)

    return _fewest(view, terms, node, answers, fits)[1]


def _preemption(
    view: View, prefiltered: PreFilterState, terms: PreemptionTerms, node: str, answers: NodeAnswers
) -> Preemption | None:
    """The preemption on the node, with every allocation decided. None when the cluster has changed since the node was
    found to be the best. Raises TurnSpent and Deferred.
    """

    def plans(gone: Collection[ResourceClaim]) -> tuple[Planned, ...] | None:
        plan = plan_without(view, prefiltered, terms, node, gone)
        view.decisions.budget.settle()
        return plan

    found, victims = _fewest(view, terms, node, answers, lambda gone: plans(gone) is not None)
    if not victims:
        return None
    decided = plans(found.freed_by({victim.pod.metadata.uid for victim in victims}))
    return Preemption(terms.preemptor, node, victims, decided) if decided else None


def _fewest(
    view: View, terms: PreemptionTerms, node: str, answers: NodeAnswers, fits: Fits
) -> tuple[PreemptibleClaims, tuple[Victim, ...] | None]:
    """The preemptible claims on the node, and the victims as for `_victims`."""
    found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(node))
    victims = fewest(found, terms.budgets, fits, answers.on(view, terms, node))
    if terms.args.violate_budgets or not any(victim.violates_budget for victim in victims or ()):
        return found, victims
    return found, None
