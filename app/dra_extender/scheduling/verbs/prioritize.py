"""The prioritize verb: on which of the nodes that fit does the pod get what it likes best?

Promises: integers from 0 to 10, one per node asked about; nothing is written. The same answer serves a scheduler that
allocates by itself and only wants advice, because it would choose the same devices.

Rules: Kubernetes 1.36, computeScore in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go: the
earlier the chosen alternative of a prioritized list, the better. In addition a node scores 0 when the pod fits there
only as long as another pod, which is probably about to be bound there, does not take its devices. Where a placement
policy is in force, the node it chooses of the best ones gets 10 and all others 0, for pods without devices as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.allocation.plan import Plan
from dra_extender.api.extender import ExtenderArgs, HostPriority
from dra_extender.scheduling.feasibility import (
    NodeAllocation,
    PendingClaims,
    PreFilterState,
    allocate,
    groups,
    pending_claims,
    pre_filter,
    typical,
)
from dra_extender.scheduling.reservations import Reservations, Tentative
from dra_extender.scheduling.view import View

MOST = 10
COMPARED = 32
"""On so many nodes it is decided whether the pod fits beside others that are expected there; on more it is not asked.
"""


def prioritize(view: View, args: ExtenderArgs, reservations: Reservations | None) -> list[HostPriority]:
    """The answer to one call. `reservations`: the plans that are likely to be bound, to which that for the best node is
    added; None when the scheduler allocates by itself, so that nothing is expected of us later.
    """
    names = tuple(dict.fromkeys(args.NodeNames or ()))
    scores = dict.fromkeys(names, 0)
    if view.uses_devices(args.Pod):
        prefiltered = pre_filter(view, args.Pod)
        if isinstance(prefiltered, PreFilterState):
            _prefer_better_alternatives(view, prefiltered, scores)
            if reservations is not None:
                _avoid_contested(view, reservations, prefiltered, scores)
            _prefer_by_policy(view, prefiltered, scores)
            if reservations is not None:
                _expect_best(view, reservations, prefiltered, scores)
    elif view.placement is not None and (chosen := view.placement.choose(args.Pod, (), names)):
        scores[chosen] = MOST
    return list(map(HostPriority, scores.keys(), scores.values()))


def _prefer_better_alternatives(view: View, prefiltered: PreFilterState, scores: dict[str, int]) -> None:
    """Raw scores, brought to 0..10 over these nodes."""
    allocated = [(claim, claim.allocation) for claim in prefiltered.claims.allocated if claim.allocation is not None]
    already = view.decisions.scorer.fixed(allocated)
    raw = {name: already + score for name, score in raw_scores(view, prefiltered, list(scores)).items()}
    best = max(raw.values(), default=0)
    if best > 0:
        scores.update({name: score * MOST // best for name, score in raw.items()})


def _prefer_by_policy(view: View, prefiltered: PreFilterState, scores: dict[str, int]) -> None:
    """Where a policy is in force it chooses among the nodes with the best score, and only its choice keeps a score:
    0 to 10 is too coarse to say more.
    """
    if not has_policy(view, prefiltered):
        return
    found = set(scores.values())
    best = max(found, default=0)
    equal = len(found) == 1
    names = list(scores) if equal else [name for name, score in scores.items() if score == best]
    chosen = chosen_of(view, prefiltered, names)
    if chosen:
        if not equal or best:
            scores.update(dict.fromkeys(scores, 0))
        scores[chosen] = MOST


def has_policy(view: View, prefiltered: PreFilterState) -> bool:
    """False when the first devices that fit are taken; asked before anything is done for thousands of nodes."""
    if view.placement is None:
        return False
    return prefiltered.wanted is not None or view.placement.has_opinion(prefiltered.pod, prefiltered.claims.pending)


def chosen_of(view: View, prefiltered: PreFilterState, names: Sequence[str]) -> str:
    """The node that the pod's policy chooses of these, on which the pod fits; empty when there is no policy."""
    if view.placement is None or not has_policy(view, prefiltered):
        return ""
    claims, nodes = typical(view, prefiltered, names)
    return view.placement.choose(prefiltered.pod, claims, nodes)


def raw_scores(view: View, prefiltered: PreFilterState, names: Sequence[str]) -> dict[str, int]:
    """What the scorer says of what the pod would get on each of these nodes that fits; empty when that is the same."""
    scorer = view.decisions.scorer
    if prefiltered.wanted is None and not scorer.concerns(prefiltered.claims.pending):
        return {}
    found: dict[str, int] = {}
    for claims, group in groups(view, prefiltered, names, {}):
        if scorer.concerns(claims):
            found.update(view.decisions.scores(claims, group))
    return found


def _avoid_contested(
    view: View, reservations: Reservations, prefiltered: PreFilterState, scores: dict[str, int]
) -> None:
    others = reservations.others(prefiltered.pod.metadata.uid)
    expected_on = [name for name in others if name in scores]
    contested = expected_on[COMPARED:]
    contested += [name for name in expected_on[:COMPARED] if not _fits_beside(view, prefiltered, name, others[name])]
    if not contested:
        return
    if not any(scores.values()):
        scores.update(dict.fromkeys(scores, 1))
    scores.update(dict.fromkeys(contested, 0))


def _fits_beside(view: View, prefiltered: PreFilterState, name: str, plans: Iterable[Tentative]) -> bool:
    """True when the pod's claims can still be allocated on the node when these plans have come true."""
    node = view.cluster.nodes.get(name)
    pending = pending_claims(prefiltered, node) if node is not None else None
    if not isinstance(pending, PendingClaims) or not pending.claims:
        return True
    decided = [pair for plan in plans for pair in plan.planned]
    after = view.decisions.with_state(view.overlay().beside(decided))
    try:
        return isinstance(after.plan(pending.claims, name), Plan)
    except (Deferred, TurnSpent):
        return True


def _expect_best(view: View, reservations: Reservations, prefiltered: PreFilterState, scores: dict[str, int]) -> None:
    best = max(scores.values(), default=0)
    favourites = [name for name, score in scores.items() if score == best]
    if best > 0 and len(favourites) == 1:
        plan = expected(view, prefiltered, favourites[0])
        if plan is not None:
            reservations.put(plan)


def expected(view: View, prefiltered: PreFilterState, name: str) -> Tentative | None:
    """The scheduler will probably choose this node: other pods had better prefer nodes where both fit."""
    try:
        decision = allocate(view, prefiltered, name)
    except TurnSpent:  # a hint is not worth another turn
        return None
    if not isinstance(decision, NodeAllocation) or not decision.pending:
        return None
    uid = prefiltered.pod.metadata.uid
    return Tentative(pod_uid=uid, node=name, claims=decision.pending, allocations=decision.allocations)
