"""On which node a waiting pod would be bound if its turn came now, given all plans that come before it.

Promises: the allocator decides on the hypothetical state. A placement policy that has an opinion chooses the node;
otherwise the nodes that fit take turns. Choosing changes nothing but the lists of nodes to try. A pod takes at most
`TRIES` decisions, `CHOICES` if a policy chooses, however many nodes there are; all nodes are filtered at most once in
`RENEWED_SECONDS` for each group of equal pods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from cachetools import LRUCache

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Overlay
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.earlynomination.nominations import EarlyNomination, EarlyNominations
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, allocate, node_statuses, pre_filter
from dra_extender.scheduling.noderules import ResourcesInUse, Wants
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.tentativeplans import TentativePlan, Touched
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


class NodeList:
    """The nodes to try for equal pods: the best score first, and of equal scores the one least recently used."""

    def __init__(self, names: Sequence[str], scores: Mapping[str, int]) -> None:
        self._by_score: dict[int, deque[str]] = {}
        for name in names:
            self._by_score.setdefault(scores.get(name, 0), deque()).append(name)

    def best(self) -> Sequence[str]:
        return list(self._by_score[max(self._by_score)]) if self._by_score else ()

    def drop(self, name: str) -> None:
        for score, names in self._by_score.items():
            if name in names:
                names.remove(name)
                if not names:
                    del self._by_score[score]
                return

    def used(self, name: str) -> None:
        """A pod is expected on the node: nodes with the same score come before it."""
        for names in self._by_score.values():
            if name in names:
                names.remove(name)
                names.append(name)
                return

    def first(self) -> Iterator[str]:
        """The first node, repeatedly: the caller drops it, or takes it and stops."""
        while self._by_score:
            yield self._by_score[max(self._by_score)][0]

    def __len__(self) -> int:
        return sum(map(len, self._by_score.values()))


class NodeLists:
    """By group of equal pods: a key of everything by which pods differ for the nodes they fit on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: LRUCache[Hashable, tuple[NodeList, float, int]] = LRUCache(GROUPS)

    def get(self, group: Hashable, revision: int) -> NodeList | None:
        """The nodes that are left; None when all nodes have to be filtered again."""
        found = self._known.get(group)
        if found is None:
            return None
        most = RENEWED_SECONDS if revision > found[2] else OLD_SECONDS
        return found[0] if len(found[0]) or self._clock.monotonic() - found[1] < most else None

    def put(self, group: Hashable, names: Sequence[str], scores: Mapping[str, int], revision: int) -> NodeList:
        """Remember nodes that were found to fit just now, on a state of this revision."""
        nodes = NodeList(names, scores)
        self._known[group] = nodes, self._clock.monotonic(), revision
        return nodes

    def clear(self) -> None:
        """An expected pod does not come: nodes that were dropped may fit again."""
        self._known.clear()


class NodeChooser:
    def __init__(
        self,
        view: View,
        deferred: DeferredWork,
        requeue: RequeueTrigger,
        usage: ResourcesInUse,
        nominations: EarlyNominations,
    ) -> None:
        self._view = view
        self._deferred = deferred
        self._requeue = requeue
        self._usage = usage
        self._nominations = nominations
        self._lists = NodeLists(view.clock)

    def freed(self) -> None:
        """A nomination was given up."""
        self._lists.clear()

    async def choose(self, pod: Pod) -> TentativePlan | None:
        """The node and the devices that the pod would get; None when it fits nowhere or this is unknown now."""
        found, waits = await self._deferred.decide(pod, lambda view: self._decide(view, pod))
        return None if waits else found

    async def decide_again(self, pod: Pod, node: str) -> TentativePlan | None:
        """The devices that the pod would get on this node now."""
        found, _ = await self._deferred.decide(pod, lambda view: self._decide(view, pod, node))
        return found

    def displaced(self, nomination: EarlyNomination) -> Iterator[EarlyNomination]:
        """The other nominations whose plans name devices of this one. Their pods have lower priority, or a bind in
        progress decided differently.
        """
        taken = _devices(nomination.plan)
        for other in self._nominations.touching({device[:2] for device in taken}):
            if other.uid != nomination.uid and not taken.isdisjoint(_devices(other.plan)):
                yield other

    def _decide(self, view: View, pod: Pod, node: str = "") -> TentativePlan | None:
        """The plan, also None when the call has used all its work. Raises TurnSpent."""
        try:
            prefiltered = pre_filter(view, pod)
            if not isinstance(prefiltered, PreFilterState) or self._shares_pending_claim(view, prefiltered):
                return None
            wants = Wants(pod)
            return self._plan(view, prefiltered, wants, node) if node else self._first(view, prefiltered, wants)
        except Deferred:
            return None

    def _shares_pending_claim(self, view: View, prefiltered: PreFilterState) -> bool:
        """True when the plan of another pod allocates one of the claims."""
        pending = prefiltered.claims.pending
        state = self._state(view, prefiltered, map(identity, pending))
        return any(map(state.has, pending))

    def _state(self, view: View, prefiltered: PreFilterState, touched: Iterable[Touched]) -> Overlay:
        """The cluster with the plans that come before the pod's and touch any of these. Raises TurnSpent."""
        pod = prefiltered.pod
        plans = list(self._nominations.before(pod.metadata.uid, pod.spec.priority, touched))
        view.decisions.budget.spend(sum(len(allocation.devices.results) for _, allocation in plans))
        return view.overlay().holding(plans)

    def _first(self, view: View, prefiltered: PreFilterState, wants: Wants) -> TentativePlan | None:
        """The plan for the first node where the pod fits. Raises TurnSpent and Deferred."""
        if prefiltered.wanted is not None:
            return None
        revision, group = self._requeue.revision, self._group(view, prefiltered, wants)
        nodes = self._lists.get(group, revision)
        if nodes is None:
            fits = node_statuses(view, prefiltered, list(view.cluster.nodes)).fits
            nodes = self._lists.put(group, fits, raw_scores(view, prefiltered, fits), revision)
        for name, _ in zip(self._in_order(view, prefiltered, nodes), range(TRIES), strict=False):
            found = self._plan(view, prefiltered, wants, name)
            if found is not None:
                nodes.used(name)
                return found
            nodes.drop(name)
        return None

    def _in_order(self, view: View, prefiltered: PreFilterState, nodes: NodeList) -> Iterator[str]:
        """The nodes to try, the best first; the caller drops each before it asks for the next one."""
        placement, pod, claims = view.placement, prefiltered.pod, prefiltered.claims.pending
        if placement is None or not placement.has_opinion(pod, claims):
            yield from nodes.first()
            return
        expecting = {each.node for each in self._nominations} if placement.policy_of(pod, claims) != _PACKING else ()
        for _ in range(CHOICES):
            if not (names := nodes.best()):
                return
            chosen = placement.choose(pod, claims, [name for name in names if name not in expecting] or names)
            yield chosen or names[0]

    def _plan(self, view: View, prefiltered: PreFilterState, wants: Wants, name: str) -> TentativePlan | None:
        """Raises TurnSpent and Deferred."""
        node = view.cluster.nodes.get(name)
        view.decisions.budget.spend(PER_NODE + wants.cost)
        if node is None or self._usage.keeps_away(wants, node):
            return None
        state = self._state(view, prefiltered, view.cluster.inventory.pools_seen(name))
        found = allocate(view.with_state(state), prefiltered, name)
        if not isinstance(found, NodeAllocation):
            return None
        uid = prefiltered.pod.metadata.uid
        return TentativePlan(pod_uid=uid, node=name, claims=found.pending, allocations=found.allocations)

    def _group(self, view: View, prefiltered: PreFilterState, wants: Wants) -> Hashable:
        allocated = tuple(claim.metadata.uid for claim in prefiltered.claims.allocated)
        return view.decisions.signatures(prefiltered.claims.pending), allocated, wants.rules


def _devices(plan: TentativePlan) -> frozenset[DeviceID]:
    results = [result for allocation in plan.allocations for result in allocation.devices.results]
    return frozenset(result.id for result in results if not result.admin_access and result.share_id is None)
