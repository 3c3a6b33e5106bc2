"""Pods that are scheduled on a copy of the cluster, one after the other, each on the first node that fits by name.

Promises: a placed pod uses devices and resources that later pods cannot have. Besides devices, the rules of
kube-scheduler in `noderules` count. A pod that requests the same as an earlier pod starts at the node where the earlier
pod stopped: nodes that refused the earlier pod refuse this one too, because placing only takes resources. At most
`most` nodes are tried for all pods together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.devices.content import digest
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.whatif.clustercopy import ClusterCopy
from dra_extender.insight.why.podreasons import of_pod
from dra_extender.insight.why.wording import obstacle_text
from dra_extender.plurals import counted
from dra_extender.scheduling.feasibility import NodeAllocation, NodeStatuses, PreFilterState, allocate, node_statuses
from dra_extender.scheduling.turns import PORTION, QueryBudget, Turns
from dra_extender.scheduling.view import View

MOST_NODES: Final = 400_000
"""Nodes that are tried per request at most, all pods together: some seconds of work."""
UNDECIDED: Final = "not decided yet whether devices fit"
_REASONS: Final = 2


class Placed(msgspec.Struct, frozen=True):
    """`node`: where the pod fits, empty if nowhere. `reason`: why not. `shape`: equal for pods that request the same;
    None if no other pod can. Not `decided`: some nodes were not decided in time.
    """

    node: str = ""
    reason: str = ""
    shape: Hashable = None
    decided: bool = True


class _Progress:
    """The next node to try for pods of one shape, and the reasons of the nodes that refused them."""

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
        return "; ".join(parts) or "the cluster has no nodes"


class Placing:
    """Places pods on the nodes of a copy that does not change otherwise. `tried` counts nodes."""

    def __init__(self, copy: ClusterCopy, most: int = MOST_NODES) -> None:
        self.tried = 0
        self._copy = copy
        self._most = most
        self._names = sorted(copy.cluster.nodes)
        self._known: dict[Hashable, _Progress] = {}

    def place(self, pod: Pod) -> Turns[Placed | None]:
        """Place the pod on the first node that it fits. None if the search would try more than `most` nodes."""
        simulated = self._copy.pod(pod)
        prefiltered, whole = simulated.prefiltered, of_pod(simulated)
        if whole is not None or not isinstance(prefiltered, PreFilterState):
            return Placed(reason=whole.text if whole is not None else "")
        budget = QueryBudget(simulated.view)
        shape = yield from budget.turn(lambda view: _shape(view, prefiltered))
        progress = self._known.setdefault(shape, _Progress()) if shape is not None else _Progress()
        while progress.index < len(self._names):
            names = self._names[progress.index : progress.index + PORTION]
            if self.tried + len(names) > self._most:
                return None
            self.tried += len(names)
            node = yield from self._place_on(simulated, prefiltered, names, progress, budget)
            yield
            if node:
                return Placed(node, shape=shape)
        return Placed(reason=progress.reason(), shape=shape, decided=not progress.undecided)

    def _place_on(
        self,
        simulated: SimulatedPod,
        prefiltered: PreFilterState,
        names: Sequence[str],
        progress: _Progress,
        budget: QueryBudget,
    ) -> Turns[str]:
        """The first of these nodes that fits; empty if none does."""
        obstacles: list[str] = []
        for name in names:
            yield from budget.charge(simulated.cost_of(name))
            node = simulated.snapshot.node(name)
            found = next(simulated.obstacles(node), None) if node is not None else None
            obstacles.append(obstacle_text(found) if found is not None else "")
        free = [name for name, obstacle in zip(names, obstacles, strict=True) if not obstacle]
        statuses: NodeStatuses | None = NodeStatuses([], {})
        if free:
            statuses = yield from budget.turn(lambda view: node_statuses(view, prefiltered, free))
        fits = set(statuses.fits) if statuses is not None else set()
        chosen = next((name for name in names if name in fits), "")
        allocation = (yield from budget.turn(lambda view: allocate(view, prefiltered, chosen))) if chosen else None
        passed = names.index(chosen) if isinstance(allocation, NodeAllocation) else len(names)
        for obstacle in obstacles[:passed]:
            if obstacle:
                progress.obstacles[obstacle] += 1
            elif statuses is None or statuses.waiting or (chosen and not isinstance(allocation, NodeAllocation)):
                progress.undecided += 1
            else:
                progress.lacking += 1
        progress.index += passed
        if not isinstance(allocation, NodeAllocation):
            return ""
        self._copy.bind(allocation, chosen)
        return chosen


def _shape(view: View, prefiltered: PreFilterState) -> Hashable:
    """A key of everything that the pod requests. None for a pod with allocated claims: no other pod equals it."""
    if prefiltered.claims.allocated or prefiltered.existing is not None:
        return None
    spec = replace(prefiltered.pod.spec, resource_claims=(), node_name="", priority=0)
    return view.decisions.signatures(prefiltered.claims.pending), digest(spec), prefiltered.pod.metadata.namespace
