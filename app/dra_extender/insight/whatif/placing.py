"""Pods that get a node on paper, one after the other, each on the first node that fits by name.

Promises: who has a place takes it from those who follow. Besides devices, the rules of kube-scheduler count that
`noderules` checks. A pod that asks for the same as one before it begins where that one has ended: nodes that
refused the first do not fit the second, because pods only take. At most so many nodes are looked at, all pods together,
as the budget allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.devices.content import digest
from dra_extender.insight.whatif.paper import Paper
from dra_extender.insight.why.situation import Situation
from dra_extender.insight.why.summary import of_pod, words
from dra_extender.plurals import counted
from dra_extender.scheduling.feasibility import NodeAllocation, NodeStatuses, PreFilterState, allocate, node_statuses
from dra_extender.scheduling.slices import PORTION, QueryBudget, Slices
from dra_extender.scheduling.view import View

LOOKS: Final = 400_000
"""Nodes that are looked at for one question at most, pod by pod: some seconds of work."""
UNDECIDED: Final = "nobody can say yet whether devices fit"
_REASONS: Final = 2


class Budget:
    """What one question may cost. `looks`: how many nodes were looked at so far."""

    def __init__(self, most: int = LOOKS) -> None:
        self.looks = 0
        self._most = most

    def allows(self, nodes: int) -> bool:
        """True when so many more may be looked at, which counts from then on."""
        if self.looks + nodes > self._most:
            return False
        self.looks += nodes
        return True


class Placed(msgspec.Struct, frozen=True):
    """`node`: where the pod fits, empty when nowhere. `reason`: why. `shape`: the same for pods that ask for the same;
    None when there is none like it. Not `decided`: somebody would have to be waited for.
    """

    node: str = ""
    reason: str = ""
    shape: Hashable = None
    decided: bool = True


class _Progress:
    """How far pods of one shape have come, and why the nodes before that do not fit."""

    def __init__(self) -> None:
        self.index = 0
        self.lacking = 0
        self.undecided = 0
        self.obstacles: Counter[str] = Counter()

    def reason(self) -> str:
        """For people."""
        parts = [f"{counted(self.lacking, 'node')} {'lacks' if self.lacking == 1 else 'lack'} the devices"]
        parts = parts if self.lacking else []
        parts += [f"{counted(self.undecided, 'node')}: {UNDECIDED}"] if self.undecided else []
        parts += [f"{counted(count, 'node')}: {what}" for what, count in self.obstacles.most_common(_REASONS)]
        return "; ".join(parts) or "there are no nodes"


class Placing:
    """Pods on the nodes of one paper, which must not change in any other way meanwhile."""

    def __init__(self, paper: Paper, budget: Budget) -> None:
        self._paper = paper
        self._budget = budget
        self._names = sorted(paper.cluster.nodes)
        self._known: dict[Hashable, _Progress] = {}
        self._undo: list[Callable[[], None]] = []

    def place(self, pod: Pod) -> Slices[Placed | None]:
        """Where the pod fits, which it takes; None when looking would cost more than the budget allows."""
        situation = self._paper.situation(pod)
        prefiltered, whole = situation.prefiltered, of_pod(situation)
        if whole is not None or not isinstance(prefiltered, PreFilterState):
            return Placed(reason=whole.text if whole is not None else "")
        query_budget = QueryBudget(situation.view)
        shape = yield from query_budget.turn(lambda view: _shape(view, prefiltered))
        progress = self._known.setdefault(shape, _Progress()) if shape is not None else _Progress()
        while progress.index < len(self._names):
            names = self._names[progress.index : progress.index + PORTION]
            if not self._budget.allows(len(names)):
                return None
            node = yield from self._on(situation, prefiltered, names, progress, query_budget)
            yield
            if node:
                return Placed(node, shape=shape)
        return Placed(reason=progress.reason(), shape=shape, decided=not progress.undecided)

    def undo(self) -> Slices[None]:
        """All pods that were placed lose their place again."""
        while self._undo:
            self._undo.pop()()
            if len(self._undo) % PORTION == 0:
                yield

    def _on(
        self,
        situation: Situation,
        prefiltered: PreFilterState,
        names: Sequence[str],
        progress: _Progress,
        query_budget: QueryBudget,
    ) -> Slices[str]:
        """The first of these nodes that fits; empty when none does. What is passed over is noted."""
        told: list[str] = []
        for name in names:
            if query_budget.must_yield(situation.cost_of(name)):
                yield
            told.append(self._obstacle(situation, name))
        free = [name for name, obstacle in zip(names, told, strict=True) if not obstacle]
        judged = (
            (yield from query_budget.turn(lambda view: node_statuses(view, prefiltered, free)))
            if free
            else NodeStatuses([], {})
        )
        fits = set(judged.fits) if judged is not None else set()
        node = next((name for name in names if name in fits), "")
        decision = (yield from query_budget.turn(lambda view: allocate(view, prefiltered, node))) if node else None
        passed = names.index(node) if isinstance(decision, NodeAllocation) else len(names)
        for obstacle in told[:passed]:
            if obstacle:
                progress.obstacles[obstacle] += 1
            elif judged is None or judged.waiting or (node and not isinstance(decision, NodeAllocation)):
                progress.undecided += 1
            else:
                progress.lacking += 1
        progress.index += passed
        if not isinstance(decision, NodeAllocation):
            return ""
        self._undo.append(self._paper.bind(decision, node))
        return node

    def _obstacle(self, situation: Situation, name: str) -> str:
        node = situation.node(name)
        found = next(situation.obstacles(node), None) if node is not None else None
        return words(found) if found is not None else ""


def _shape(view: View, prefiltered: PreFilterState) -> Hashable:
    """What the pod asks for. Claims that are allocated already are nobody else's."""
    if prefiltered.claims.allocated or prefiltered.existing is not None:
        return None
    spec = replace(prefiltered.pod.spec, resource_claims=(), node_name="", priority=0)
    return view.decisions.signatures(prefiltered.claims.pending), digest(spec), prefiltered.pod.metadata.namespace
