"""Whom a pod should preempt, and on which node.

Promises
- A question: nothing is changed. `find_preemption` decides on one state; `Search` does so in turns, and what it answers
  is true of the state of its last turn: the victims on the chosen node are worked out anew then.
- Nobody is preempted when the pod fits on one of the nodes, or will when pods are gone that are going already; when it
  has victims that are going; and when all of this cannot be said of every node for want of a worker's answer.
- Work grows with the nodes, and with the claims that have devices there. Nodes where taking everything away does not
  help are dropped at once; of the others those are looked at closely, up to a number, that can still be the best.

Rules: Kubernetes 1.36, pkg/scheduler/framework/preemption and PodEligibleToPreemptOthers of
plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import is_
from typing import Final

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.api.core import Pod
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.preemption.choice import Loss, loss
from dra_extender.scheduling.preemption.occupants import Occupants, is_stuck, occupants_of
from dra_extender.scheduling.preemption.outcome import NoPreemption, Preemption, Victim
from dra_extender.scheduling.preemption.scan import Candidate, scan
from dra_extender.scheduling.preemption.state import fitting, planned, spend
from dra_extender.scheduling.preemption.terms import Rules, Terms
from dra_extender.scheduling.preemption.victims import Answers, fewest
from dra_extender.scheduling.view import View

CHUNK: Final = 64
"""How many nodes are looked at together, at first."""
PODS: Final = 8
"""How many pods are looked at for a unit of work."""

NEVER = NoPreemption("never", "not eligible due to preemptionPolicy=Never.")
NOBODY_LOWER = NoPreemption("never", "no pod has a lower priority")
NOMINATED = "not eligible due to a terminating pod on the nominated node."
FITS = "the devices fit already"
WAITS = "the devices fit when pods are gone that are being deleted"
HOPELESS = NoPreemption("hopeless", "evicting pods of lower priority does not free the devices")
UNKNOWN = NoPreemption("unknown", "not everything could be decided yet")


def find_preemption(
    view: View,
    preemptor: Pod,
    nodes: Sequence[str],
    *,
    budgets: Iterable[PodDisruptionBudget] = (),
    rules: Rules = Rules(),  # frozen
    stuck: Collection[str] = (),
) -> Preemption | NoPreemption:
    """The preemption that hurts least. `nodes`: where the pod lacks nothing but devices. See `Terms` for the rest. What
    the view keeps for others is taken.
    """
    terms = Terms(
        preemptor=preemptor,
        rules=rules,
        budgets=tuple(budgets),
        stuck=frozenset(stuck),
    )
    return Search(terms, nodes).found(view)


class Asked:
    """What was answered about one node in earlier turns; forgotten when something there has changed."""

    def __init__(self) -> None:
        self._state: tuple[object, ...] = ()
        self._answers: Answers = {}

    def on(self, view: View, terms: Terms, node: str) -> Answers:
        """The answers for the node in its present state, to be added to."""
        inventory = view.cluster.inventory
        kept = (allocation for _, allocation in view.kept(terms.preemptor))
        state = inventory.view(node), *map(view.ledger.holdings, inventory.pools_seen(node)), *kept
        if len(state) != len(self._state) or not all(map(is_, state, self._state)):
            self._state, self._answers = state, {}
        return self._answers


class Search:
    """One question. Ask `found` until it does not raise TurnSpent, each time with the view of another turn."""

    def __init__(self, terms: Terms, nodes: Sequence[str]) -> None:
        self._terms = terms
        self._nodes = tuple(dict.fromkeys(nodes))
        self._position = 0
        self._chunk = CHUNK
        self._waits = ""
        self._unknown = False
        self._doubtful = False
        self._candidates: list[Candidate] = []
        self._ranked: list[Candidate] | None = None
        self._best: Loss | None = None
        self._asked = Asked()
        self._verified = Asked()

    def found(self, view: View) -> Preemption | NoPreemption:
        """Raises TurnSpent when another turn is needed."""
        try:
            refused = ineligible(view, self._terms)
        except Deferred:
            return UNKNOWN
        if refused is not None:
            return refused
        prefiltered = pre_filter(view, self._terms.preemptor)
        if not isinstance(prefiltered, PreFilterState):
            return NoPreemption(
                "refused", prefiltered.reason if isinstance(prefiltered, Unschedulable) else prefiltered.error
            )
        try:
            return self._decided(view, prefiltered, self._terms.about(prefiltered.order))
        except Deferred:
            return UNKNOWN

    def _decided(self, view: View, prefiltered: PreFilterState, terms: Terms) -> Preemption | NoPreemption:
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
        return _exactly(view, prefiltered, terms, self._best[-1], self._verified) or UNKNOWN

    def _scan(self, view: View, prefiltered: PreFilterState, terms: Terms) -> str:
        """Find the candidates among the nodes. The name of a node where the pod fits already, if there is one."""
        while self._position < len(self._nodes):
            names = self._nodes[self._position : self._position + self._chunk]
            try:
                found = scan(view, prefiltered, terms, names)
            except TurnSpent:
                self._chunk = max(1, self._chunk // 2)
                raise
            if found.fits:
                return found.fits
            self._waits = self._waits or found.waits
            self._unknown = self._unknown or found.unknown
            self._doubtful = self._doubtful or found.doubtful
            self._candidates += found.candidates
            self._position += len(names)
        return ""

    def _rank(self, view: View, prefiltered: PreFilterState, terms: Terms) -> None:
        """Work out the victims where they may be the best."""
        if self._ranked is None:
            most = terms.rules.most_candidates(len(self._nodes))
            self._ranked = sorted(self._candidates, key=_promise, reverse=True)[-most:]
        while self._ranked:
            candidate = self._ranked[-1]
            if self._best is not None and _promise(candidate)[:2] > self._best[:2]:
                break
            victims = _victims(view, prefiltered, terms, candidate.node, self._asked)
            if victims:
                found = loss(candidate.node, victims)
                self._best = found if self._best is None else min(found, self._best)
            self._ranked.pop()


def ineligible(view: View, terms: Terms) -> NoPreemption | None:
    """Why the pod must not preempt anybody now; None when it may. On the nominated node the pod may lack more than
    devices: kube-scheduler is then making room there, and does not ask about the node meanwhile.
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


def keeps_place(view: View, terms: Terms, node: str) -> bool:
    """True as long as nobody else has to be evicted for the pod on the node: it fits there, will when those are gone
    that are going, or nobody can say. False for a pod whose claims cannot be decided on. Raises TurnSpent.
    """
    try:
        if _awaits_victims(view, terms):
            return True
        prefiltered = pre_filter(view, terms.preemptor)
        if not isinstance(prefiltered, PreFilterState):
            return False
        found = scan(view, prefiltered, terms.about(prefiltered.order), (node,))
    except Deferred:
        return True
    return bool(found.fits or found.waits or found.unknown)


def _awaits_victims(view: View, terms: Terms) -> bool:
    """True when pods are going, perhaps for the preemptor, where it is nominated."""
    nominated = terms.preemptor.status.nominated_node_name
    if not nominated:
        return False
    spend(view, len(view.pods) // PODS)
    return any(_is_victim(view, terms, pod, nominated) for pod in view.pods)


def _is_victim(view: View, terms: Terms, pod: Pod, node: str) -> bool:
    """True when the pod is going, and may be doing so for the preemptor, which is nominated for this node."""
    return (
        pod.spec.node_name == node
        and bool(pod.metadata.deletion_timestamp)
        and pod.spec.priority < terms.preemptor.spec.priority
        and not is_stuck(view, terms, pod)
    )


def _promise(candidate: Candidate) -> tuple[int, int, str]:
    """No less than this will preemption on the node cost."""
    return candidate.violations, candidate.priority, candidate.node


def _occupants(view: View, terms: Terms, node: str) -> Occupants:
    return occupants_of(view, terms, view.cluster.inventory.pools_seen(node))


def _victims(
    view: View, prefiltered: PreFilterState, terms: Terms, node: str, asked: Asked
) -> tuple[Victim, ...] | None:
    """The fewest on the node; None when it is in vain, or must not be."""

    def fits(gone: Collection[ResourceClaim]) -> bool:
        return bool(fitting(view, prefiltered, terms, (node,), gone).fits)

    known = asked.on(view, terms, node)
    return _allowed(terms, fewest(_occupants(view, terms, node), terms.budgets, fits, known=known))


def _exactly(view: View, prefiltered: PreFilterState, terms: Terms, node: str, asked: Asked) -> Preemption | None:
    """The preemption on the node, with nothing left open. None when the cluster is not as it was when the node was
    found to be the best one. Raises TurnSpent and Deferred.
    """

    def plans(gone: Collection[ResourceClaim]) -> tuple[Planned, ...] | None:
        return planned(view, prefiltered, terms, node, gone)

    found = _occupants(view, terms, node)
    known = asked.on(view, terms, node)
    victims = _allowed(terms, fewest(found, terms.budgets, lambda gone: plans(gone) is not None, known=known))
    if not victims:
        return None
    decided = plans(found.without({victim.pod.metadata.uid for victim in victims}))
    return Preemption(terms.preemptor, node, victims, decided) if decided else None


def _allowed(terms: Terms, victims: tuple[Victim, ...] | None) -> tuple[Victim, ...] | None:
    if terms.rules.violate_budgets or not any(victim.violates_budget for victim in victims or ()):
        return victims
    return None
