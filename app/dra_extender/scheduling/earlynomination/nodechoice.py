"""On which node a waiting pod would be bound if its turn came now, given all plans that come before it.

Promises: the allocator decides on the hypothetical state. A placement policy that has an opinion chooses the node;
otherwise the nodes that fit take turns. Choosing changes nothing but the lists of nodes to try. A pod takes at most
`TRIES` decisions, `CHOICES` if a policy chooses, however many nodes there are; all nodes are filtered at most once in
`RENEWED_SECONDS` for each group of equal pods.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Hashable
from typing import Final

import msgspec
from cachetools import LRUCache

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod
from dra_extender.devices.ledger import identity
from dra_extender.limits import PLANNED_OF_POOL
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, allocate, node_statuses, pre_filter
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.noderules import ResourcesInUse, Wants
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans, Touched
from dra_extender.scheduling.verbs.prioritize import raw_scores
from dra_extender.scheduling.view import View

TRIES: Final = 64
CHOICES: Final = 8
"""Nodes that are tried for a pod if a placement policy chooses: each choice compares all nodes that are left."""
PER_NODE: Final = 5
"""Units of work for a node, without its devices and what the pod requests of it."""
GROUPS: Final = 64
"""Groups of equal pods whose nodes are remembered."""
RENEWED_SECONDS: Final = 1.0
OLD_SECONDS: Final = 10.0
"""After this time there may be more nodes, even when nothing is known to have improved."""

_PACKING: Final = "pack"


class _NodeList(msgspec.Struct):
    """`nodes` that are left to try: (score, negative; turn; name), sorted. Found at this time (monotonic seconds) on a
    state of this revision. `turns`: by node, when it was tried last. `outdated`: nodes that were dropped may fit again.
    """

    nodes: list[tuple[int, int, str]]
    at: float
    revision: int
    turns: dict[str, int]
    outdated: bool = False


class NodeChooser:
    def __init__(self, handle: Handle, tentative_plans: TentativePlans, usage: ResourcesInUse) -> None:
        self._handle = handle
        self._tentative_plans = tentative_plans
        self._usage = usage
        self._lists: LRUCache[Hashable, _NodeList] = LRUCache(GROUPS)
        """By group of equal pods: a key of everything by which pods differ for the nodes they fit on."""
        self._turn = 0

    def freed(self) -> None:
        """A nomination was given up: nodes that were dropped may fit again."""
        for known in self._lists.values():
            known.outdated = True

    async def choose(self, pod: Pod, node: str = "") -> TentativePlan | None:
        """The node and the devices that the pod would get, on this node if one is given. None when it does not fit, or
        this is unknown now.
        """
        found, _ = await self._handle.deferred.decide(pod, lambda view: self._decide(view, pod, node))
        return found

    def _decide(self, view: View, pod: Pod, node: str) -> TentativePlan | None:
        """The plan, also None when the call has used all its work. Raises TurnSpent."""
        try:
            prefiltered = pre_filter(view, pod)
            if not isinstance(prefiltered, PreFilterState) or prefiltered.wanted is not None:
                return None
            shared = self._tentative_plans.touching(map(identity, prefiltered.claims.pending))
            if any(plan.pod_uid != pod.metadata.uid for plan in shared):
                return None
            if node:
                return self._plan(view, prefiltered, Wants(pod), node)
            found = self._first(view, prefiltered, Wants(pod))
            return None if found is None or self._is_crowded(found) else found
        except Deferred:
            return None

    def _first(self, view: View, prefiltered: PreFilterState, wants: Wants) -> TentativePlan | None:
        """The plan for the first node where the pod fits. Raises TurnSpent and Deferred."""
        known = self._nodes(view, prefiltered, wants)
        nodes = known.nodes
        has_policy = view.placement is not None and view.placement.has_opinion(wants.pod, prefiltered.claims.pending)
        for _ in range(CHOICES if has_policy else TRIES):
            if not nodes:
                return None
            index = self._chosen(view, prefiltered, nodes) if has_policy else 0
            found = self._plan(view, prefiltered, wants, nodes[index][2])
            score, _, name = nodes.pop(index)
            known.turns[name] = self._turn = self._turn + 1
            if found is not None:
                insort(nodes, (score, self._turn, name))
                return found
        return None

    def _nodes(self, view: View, prefiltered: PreFilterState, wants: Wants) -> _NodeList:
        """The nodes to try: the best score first, and of equal scores the one least recently used."""
        now, revision = view.clock.monotonic(), self._handle.requeue.revision
        allocated = tuple(claim.metadata.uid for claim in prefiltered.claims.allocated)
        group = view.decisions.signatures(prefiltered.claims.pending), allocated, wants.rules
        known = self._lists.get(group)
        if known is not None:
            seconds = RENEWED_SECONDS if known.outdated or revision > known.revision else OLD_SECONDS
            if now - known.at < seconds or (known.nodes and not known.outdated):
                return known
        fits = node_statuses(view, prefiltered, list(view.cluster.nodes)).fits
        scores = raw_scores(view, prefiltered, fits)
        turns = {name: known.turns[name] for name in fits if name in known.turns} if known is not None else {}
        new = enumerate(fits, start=-len(fits))  # nodes that were never tried come first
        nodes = sorted([(-scores.get(name, 0), turns.get(name, turn), name) for turn, name in new])
        found = self._lists[group] = _NodeList(nodes, now, revision, turns)
        return found

    def _chosen(self, view: View, prefiltered: PreFilterState, nodes: list[tuple[int, int, str]]) -> int:
        """The index of the best node by the placement policy. Policies do not know plans, so nodes with plans come
        last, unless the policy packs.
        """
        pod, claims = prefiltered.pod, prefiltered.claims.pending
        best = [name for score, _, name in nodes if score == nodes[0][0]]
        chosen = best[0]
        if view.placement is not None:
            packs = view.placement.policy_of(pod, claims) == _PACKING
            planned = () if packs else {plan.node for plan in self._tentative_plans.all()}
            chosen = view.placement.choose(pod, claims, [n for n in best if n not in planned] or best) or chosen
        return best.index(chosen)

    def _plan(self, view: View, prefiltered: PreFilterState, wants: Wants, name: str) -> TentativePlan | None:
        """The plan on this node, given the plans of pods whose priority is not lower, and of pods for which
        kube-scheduler has already chosen a node. Raises TurnSpent and Deferred.
        """
        node, meta, priority = view.cluster.nodes.get(name), wants.pod.metadata, wants.pod.spec.priority
        view.decisions.budget.spend(PER_NODE + wants.cost)
        if node is None or self._usage.keeps_away(wants, node):
            return None
        touching = self._tentative_plans.touching(view.cluster.inventory.pools_seen(name))
        before = [plan for plan in touching if plan.pod_uid != meta.uid and plan.priority >= priority]
        view.decisions.budget.spend(sum(len(plan.results) for plan in before))
        state = view.overlay().holding(pair for plan in before for pair in plan.planned)
        found = allocate(view.with_state(state), prefiltered, name)
        if not isinstance(found, NodeAllocation):
            return None
        return TentativePlan(meta.uid, name, found.pending, found.allocations, priority)

    def _is_crowded(self, plan: TentativePlan) -> bool:
        """True if plans have `PLANNED_OF_POOL` devices of one of the plan's pools."""
        others = self._tentative_plans.touching(plan.touched)
        planned: Counter[Touched] = Counter(result.id[:2] for other in others for result in other.results)
        return any(planned[pool] >= PLANNED_OF_POOL for pool in plan.touched & planned.keys())
