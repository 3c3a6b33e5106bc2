"""Where a pod would be bound if its turn came now, beside all plans that come before it.

Promises: decided by the one allocator on the state as it would be; the node by the placement policy where one is in
force, else in turns over those that fit. Nothing is changed by it but what is remembered of nodes to try. A pod costs
`TRIES` decisions at most, however many nodes there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Overlay
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, allocate, node_statuses, pre_filter
from dra_extender.scheduling.noderules import Wants
from dra_extender.scheduling.planindex import Touched
from dra_extender.scheduling.planning.hints import Hint, Hints
from dra_extender.scheduling.planning.occupancy import Occupancy
from dra_extender.scheduling.planning.targets import TargetLists, Targets
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.reservations import Tentative
from dra_extender.scheduling.verbs.prioritize import raw_scores
from dra_extender.scheduling.view import View

TRIES: Final = 64
LOOK: Final = 5
"""Units of work that looking at a node costs, devices and what the pod asks of it aside."""

_PACKING: Final = "pack"


class Chooser:
    """One per planner."""

    def __init__(
        self, view: View, deferred: DeferredWork, requeue: RequeueTrigger, occupancy: Occupancy, hints: Hints
    ) -> None:
        self._view = view
        self._deferred = deferred
        self._requeue = requeue
        self._occupancy = occupancy
        self._hints = hints
        self._lists = TargetLists(view.clock)

    def freed(self) -> None:
        """A plan has been given up."""
        self._lists.clear()

    async def choose(self, pod: Pod) -> Tentative | None:
        """What the pod would take, and where; None when it fits nowhere, or nobody can say yet."""
        found, waits = await self._deferred.decide(pod, lambda view: self._choose(view, pod))
        return None if waits else found

    async def again(self, pod: Pod, node: str) -> Tentative | None:
        """What the pod would take there now."""
        found, _ = await self._deferred.decide(pod, lambda view: self._here(view, pod, node))
        return found

    def displaced(self, hint: Hint) -> Iterator[Hint]:
        """Hints that name devices of this one: those of lower priority, and those that a bind has made pointless."""
        taken = _devices(hint.plan)
        for other in self._hints.touching({device[:2] for device in taken}):
            if other.uid != hint.uid and not taken.isdisjoint(_devices(other.plan)):
                yield other

    def _here(self, view: View, pod: Pod, node: str) -> Tentative | None:
        prefiltered = pre_filter(view, pod)
        if not isinstance(prefiltered, PreFilterState) or self._goes_along(view, prefiltered):
            return None
        return self._plan(view, prefiltered, Wants(pod), node)

    def _goes_along(self, view: View, prefiltered: PreFilterState) -> bool:
        """True when another pod would have one of the claims allocated."""
        pending = prefiltered.claims.pending
        state = self._state(view, prefiltered, map(identity, pending))
        return any(map(state.has, pending))

    def _state(self, view: View, prefiltered: PreFilterState, touched: Iterable[Touched]) -> Overlay:
        """The cluster with the plans that come before the pod's, as far as they touch any of these."""
        pod = prefiltered.pod
        return view.overlay().holding(self._hints.before(pod.metadata.uid, pod.spec.priority, touched))

    def _choose(self, view: View, pod: Pod) -> Tentative | None:
        """Raises TurnSpent."""
        prefiltered = pre_filter(view, pod)
        if not isinstance(prefiltered, PreFilterState) or prefiltered.wanted is not None:
            return None
        if self._goes_along(view, prefiltered):
            return None
        wants = Wants(pod)
        generation, kind = self._requeue.generation, self._kind(view, prefiltered, wants)
        targets = self._lists.get(kind, generation)
        if targets is None:
            fits = node_statuses(view, prefiltered, list(view.cluster.nodes)).fits
            targets = self._lists.put(kind, fits, raw_scores(view, prefiltered, fits), generation)
        names = self._in_order(view, prefiltered, targets)
        for name, _ in zip(names, range(TRIES), strict=False):
            found = self._plan(view, prefiltered, wants, name)
            if found is not None:
                targets.used(name)
                return found
            targets.drop(name)
        return None

    def _in_order(self, view: View, prefiltered: PreFilterState, targets: Targets) -> Iterator[str]:
        """The nodes to try, the best first; each is dropped from the targets before the next one is asked for."""
        placement, pod, claims = view.placement, prefiltered.pod, prefiltered.claims.pending
        if placement is None or not placement.has_opinion(pod, claims):
            yield from targets.first()
            return
        crowded = {hint.node for hint in self._hints} if placement.policy_of(pod, claims) != _PACKING else ()
        while names := targets.best():
            chosen = placement.choose(pod, claims, [name for name in names if name not in crowded] or names)
            yield chosen or names[0]

    def _plan(self, view: View, prefiltered: PreFilterState, wants: Wants, name: str) -> Tentative | None:
        """Raises TurnSpent."""
        node = view.cluster.nodes.get(name)
        view.decisions.spend(LOOK + wants.cost)
        if node is None or self._occupancy.keeps_away(wants, node):
            return None
        state = self._state(view, prefiltered, view.cluster.inventory.pools_seen(name))
        found = allocate(view.with_state(state), prefiltered, name)
        if not isinstance(found, NodeAllocation):
            return None
        return Tentative(
            pod_uid=prefiltered.pod.metadata.uid, node=name, claims=found.pending, allocations=found.allocations
        )

    def _kind(self, view: View, prefiltered: PreFilterState, wants: Wants) -> Hashable:
        """What tells pods apart to the nodes they fit on."""
        pod = prefiltered.pod
        affinity = pod.spec.affinity
        return (
            view.decisions.contents(prefiltered.claims.pending),
            tuple(claim.metadata.uid for claim in prefiltered.claims.allocated),
            frozenset(wants.amounts.items()),
            tuple(wants.ports),
            frozenset(pod.spec.node_selector.items()),
            affinity.node_affinity if affinity is not None else None,
            pod.spec.tolerations,
        )


def _devices(plan: Tentative | None) -> frozenset[DeviceID]:
    results = [result for allocation in plan.allocations for result in allocation.devices.results] if plan else []
    return frozenset(result.id for result in results if not result.admin_access and result.share_id is None)
