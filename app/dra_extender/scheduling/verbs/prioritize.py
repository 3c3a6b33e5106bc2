"""The prioritize verb, and the nodes that filter offers when more fit than kube-scheduler needs.

Promises of prioritize: integers from 0 to 10, one per node asked about. A scheduler that allocates
by itself gets the same scores, because it would choose the same devices.

Promises of `Offers`: by default all nodes that fit are offered. Otherwise `SchedulingConfig.offered_percent` sets the
share. With 0, `Offers` offers as many nodes as kube-scheduler looks for by default, and chooses them from all nodes.
Nodes with a better score come first; the others take turns, so that no node is left out for long. If fewer than 100
nodes fit, all are offered. The node that a placement policy chooses is always offered; a setting makes it the only one.
Nodes on which other pods are expected are not offered if 100 equal nodes remain without them. Each offered node
costs a score of every plugin of kube-scheduler and a line in two messages: on 5,000 nodes that is most of what a pod
costs.

Rules: Kubernetes 1.36, computeScore in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go: the
earlier the chosen alternative of a prioritized list, the better. In addition a node scores 0 when the pod fits there
only until another pod, which is probably about to be bound there, takes its devices. Where a placement policy is in
force, the node it chooses of the best ones gets 10 and all others 0, also for pods without devices.
numFeasibleNodesToFind in pkg/scheduler/schedule_one.go cuts the list before extenders are called, so nodes with devices
may never be tried; that is why the scheduler has to be configured to send all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.allocation.plan import Plan, has_alternatives, score_of
from dra_extender.api.extender import ExtenderArgs, HostPriority
from dra_extender.scheduling.feasibility import (
    NodeAllocation,
    PendingClaims,
    PreFilterResult,
    PreFilterState,
    allocate,
    groups,
    pending_claims,
    pre_filter,
    typical,
)
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans
from dra_extender.scheduling.view import View

MOST = 10
COMPARED = 32
"""Nodes with expected pods on which it is decided whether this pod fits too; on further nodes it counts as not fitting.
"""


def prioritize(view: View, args: ExtenderArgs, tentative_plans: TentativePlans | None) -> list[HostPriority]:
    """The answer to one call. Adds the plan for the best node to `tentative_plans`, which is None when the scheduler
    allocates by itself.
    """
    names = tuple(dict.fromkeys(args.NodeNames or ()))
    scores = dict.fromkeys(names, 0)
    if view.uses_devices(args.Pod):
        prefiltered = pre_filter(view, args.Pod)
        if isinstance(prefiltered, PreFilterState):
            _prefer_better_alternatives(view, prefiltered, scores)
            if tentative_plans is not None:
                _avoid_contested(view, tentative_plans, prefiltered, scores)
            _prefer_by_policy(view, prefiltered, scores)
            best = max(scores.values(), default=0)
            favourites = [name for name, score in scores.items() if score == best]
            if tentative_plans is not None and best > 0 and len(favourites) == 1:
                plan = expected(view, prefiltered, favourites[0])
                if plan is not None:
                    tentative_plans.put(plan)
    elif view.placement is not None and (chosen := view.placement.choose(args.Pod, (), names)):
        scores[chosen] = MOST
    return list(map(HostPriority, scores.keys(), scores.values()))


def _prefer_better_alternatives(view: View, prefiltered: PreFilterState, scores: dict[str, int]) -> None:
    """Raw scores, brought to 0..10 over these nodes."""
    allocated = [(claim, claim.allocation) for claim in prefiltered.claims.allocated if claim.allocation is not None]
    already = score_of(allocated)
    raw = {name: already + score for name, score in raw_scores(view, prefiltered, list(scores)).items()}
    best = max(raw.values(), default=0)
    if best > 0:
        scores.update({name: score * MOST // best for name, score in raw.items()})


def _prefer_by_policy(view: View, prefiltered: PreFilterState, scores: dict[str, int]) -> None:
    """A placement policy chooses among the nodes with the best score, and only its choice keeps a score: 0 to 10 is too
    coarse for more.
    """
    if not has_policy(view, prefiltered):
        return
    best = max(scores.values(), default=0)
    chosen = chosen_of(view, prefiltered, [name for name, score in scores.items() if score == best])
    if chosen:
        scores.update(dict.fromkeys(scores, 0))
        scores[chosen] = MOST


def has_policy(view: View, prefiltered: PreFilterState) -> bool:
    """False when the first devices that fit are taken."""
    if view.placement is None:
        return False
    return prefiltered.wanted is not None or view.placement.has_opinion(prefiltered.pod, prefiltered.claims.pending)


def chosen_of(view: View, prefiltered: PreFilterState, names: Sequence[str]) -> str:
    """The node that the placement policy chooses of these; empty without a policy."""
    if view.placement is None or not has_policy(view, prefiltered):
        return ""
    claims, nodes = typical(view, prefiltered, names)
    return view.placement.choose(prefiltered.pod, claims, nodes)


def raw_scores(view: View, prefiltered: PreFilterState, names: Sequence[str]) -> dict[str, int]:
    """The score of each of these nodes that fits; empty when all scores are equal."""
    if prefiltered.wanted is None and not has_alternatives(prefiltered.claims.pending):
        return {}
    found: dict[str, int] = {}
    for claims, group in groups(view, prefiltered, names, {}):
        if has_alternatives(claims):
            found.update(view.decisions.scores(claims, group))
    return found


def _avoid_contested(
    view: View, tentative_plans: TentativePlans, prefiltered: PreFilterState, scores: dict[str, int]
) -> None:
    others = tentative_plans.others(prefiltered.pod.metadata.uid)
    expected_on = [name for name in others if name in scores]
    contested = expected_on[COMPARED:]
    contested += [name for name in expected_on[:COMPARED] if not _fits_beside(view, prefiltered, name, others[name])]
    if not contested:
        return
    if not any(scores.values()):
        scores.update(dict.fromkeys(scores, 1))
    scores.update(dict.fromkeys(contested, 0))


def _fits_beside(view: View, prefiltered: PreFilterState, name: str, plans: Iterable[TentativePlan]) -> bool:
    """True when the pod's claims can still be allocated on the node after these plans are bound."""
    node = view.cluster.nodes.get(name)
    pending = pending_claims(prefiltered, node) if node is not None else None
    if not isinstance(pending, PendingClaims) or not pending.claims:
        return True
    decided = [pair for plan in plans for pair in plan.planned if pair[1].devices.results]
    after = view.decisions.with_state(view.overlay().with_plans(decided))
    try:
        return isinstance(after.plan(pending.claims, name), Plan)
    except (Deferred, TurnSpent):
        return True


def expected(view: View, prefiltered: PreFilterState, name: str) -> TentativePlan | None:
    """The plan for the node that the scheduler will probably choose; None without a plan."""
    try:
        decision = allocate(view, prefiltered, name)
    except TurnSpent:  # tentative plans only improve scores, so no further turn is used
        return None
    if not isinstance(decision, NodeAllocation) or not decision.pending:
        return None
    uid = prefiltered.pod.metadata.uid
    return TentativePlan(pod_uid=uid, node=name, claims=decision.pending, allocations=decision.allocations)


LEAST = 100
_LEAST_PERCENT = 5


def enough(nodes: int, percent: int = 0) -> int:
    """How many of `nodes` to offer; `percent` 0: as kube-scheduler does, a smaller share of larger clusters."""
    if nodes < LEAST:
        return nodes
    share = percent or max(_LEAST_PERCENT, 50 - nodes // 125)
    return min(nodes, max(LEAST, nodes * share // 100))


class Offers:
    """One per service: it remembers where the next turn starts."""

    def __init__(self) -> None:
        self._next = 0

    def choose(
        self, view: View, prefiltered: PreFilterResult, fits: list[str], asked: int, avoid: Collection[str] = ()
    ) -> list[str]:
        """The nodes to offer. `asked`: how many nodes the call has; `avoid`: nodes on which another pod is expected."""
        most = enough(asked, view.config.offered_percent)
        placement = view.placement
        alone = placement is not None and placement.strategy.only_chosen
        if len(fits) < 2 or not isinstance(prefiltered, PreFilterState):
            return fits
        if avoid and not has_alternatives(prefiltered.claims.pending):
            others = [name for name in fits if name not in avoid]
            fits = others if len(others) >= LEAST else fits
        if len(fits) <= most and not alone:
            return fits
        scores = raw_scores(view, prefiltered, fits)
        chosen = ""
        if has_policy(view, prefiltered):
            best = max(scores.values(), default=0)
            likely = [name for name in fits if scores.get(name, 0) == best]
            chosen = chosen_of(view, prefiltered, [name for name in likely if name not in avoid] or likely)
        if chosen and alone:
            return [chosen]
        if len(fits) <= most:
            return fits
        start = self._next % len(fits)
        self._next = start + most
        if not scores and not chosen:
            return fits[start : start + most] + fits[: max(0, start + most - len(fits))]
        turn = fits[start:] + fits[:start]
        turn.sort(key=lambda name: (name != chosen, -scores.get(name, 0)))
        return turn[:most]
