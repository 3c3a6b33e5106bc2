"""Which of the nodes that fit are offered to kube-scheduler, when there are more than it needs to choose well.

By default all of them are. Where that costs too much, `SchedulingConfig.offered_percent` sets the share. 0 offers as
many as kube-scheduler looks for by default, chosen from all nodes instead of the first ones it finds.

Promises: nodes with a better score (an earlier alternative of a prioritized list) come first; who is offered takes
turns, so that no node is left out for long. With fewer than 100 fitting nodes everything is offered. What a placement
policy would choose is always offered, and alone where the settings say so: then nobody can choose another one. Nodes on
which other pods are expected are left out where they are equal to 100 others.

Every offered node costs kube-scheduler a score of each of its plugins, and us a line in two messages: on 5,000 nodes
that is most of what a pod costs. Nodes that fit and are not offered get no line: kube-scheduler takes them as it takes
the nodes that it does not look at by default. Those that do not fit always have their reason.

Rules: Kubernetes 1.36, numFeasibleNodesToFind in pkg/scheduler/schedule_one.go. There the cut is made before extenders
are called, so nodes with devices may never be tried; that is why the scheduler has to be told to hand us all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dra_extender.scheduling.feasibility import PreFilterResult, PreFilterState
from dra_extender.scheduling.verbs.prioritize import chosen_of, has_policy, raw_scores
from dra_extender.scheduling.view import View

LEAST = 100
_LEAST_PERCENT = 5


def enough(nodes: int, percent: int = 0) -> int:
    """How many nodes are enough of so many; `percent` 0: fewer of many, as kube-scheduler does it."""
    if nodes < LEAST:
        return nodes
    share = percent or max(_LEAST_PERCENT, 50 - nodes // 125)
    return min(nodes, max(LEAST, nodes * share // 100))


class Offers:
    """One per service: it remembers whose turn it is."""

    def __init__(self) -> None:
        self._next = 0

    def choose(
        self,
        view: View,
        prefiltered: PreFilterResult,
        fits: list[str],
        asked: int,
        avoid: Collection[str] = (),
    ) -> list[str]:
        """The nodes to offer, of those that fit; `asked` is how many the scheduler asked about. On those to `avoid`
        another pod is expected.
        """
        most = enough(asked, view.config.offered_percent)
        placement = view.placement
        alone = placement is not None and placement.strategy.only_chosen
        if len(fits) < 2 or not isinstance(prefiltered, PreFilterState):
            return fits
        if avoid and not view.decisions.scorer.concerns(prefiltered.claims.pending):
            others = [name for name in fits if name not in avoid]
            fits = others if len(others) >= LEAST else fits
        if len(fits) <= most and not alone:
            return fits
        scores = raw_scores(view, prefiltered, fits)
        chosen = _chosen(view, prefiltered, fits, scores, avoid) if has_policy(view, prefiltered) else ""
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


def _chosen(
    view: View, prefiltered: PreFilterState, fits: Sequence[str], scores: Mapping[str, int], avoid: Collection[str]
) -> str:
    """The node that the policy chooses of the best ones."""
    likely: Sequence[str] = fits
    if scores:
        best = max(scores.values())
        likely = [name for name in fits if scores.get(name, 0) == best]
    return chosen_of(view, prefiltered, ([name for name in likely if name not in avoid] if avoid else likely) or likely)
