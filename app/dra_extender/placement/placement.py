"""Answers placement questions of the verbs and of insight: the node for a pod, and its devices, by the policy in force.

Promises: an answer depends on the cluster and on what `PlacementLearner` has learned; a question changes neither. Each
question evaluates selectors and compares devices in a work budget of its own. Where that does not suffice, the pod gets
the first devices that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, TypeVar, cast

from cachetools import LRUCache

from dra_extender.allocation.budget import Deferred, TurnBudget, TurnSpent, WorkBudget
from dra_extender.allocation.plan import Failure
from dra_extender.allocation.requests import DeviceFilter, Filters, prepare
from dra_extender.allocation.signatures import ClaimSignatures, reads_of
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim, class_names
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.devicechooser import DeviceChooser
from dra_extender.placement.freestates import FreeStates
from dra_extender.placement.partitiongroups import TooCostly
from dra_extender.placement.podshape import PodShape, filters_of, load_of, shape_of
from dra_extender.placement.policies import Fragmentation, Pack, PlacementStrategy, Policy, Spread
from dra_extender.placement.ranking import Ranking

T = TypeVar("T")

FIRST_FIT: Final = PlacementStrategy()

TURN: Final = 10_000
"""Units of work, about a microsecond each, that selectors and comparing devices may take for one question,"""
CEILING: Final = 2_000
"""and one selector on one device."""

REMEMBERED_SHAPES: Final = 4_096


class Placement:
    """One per cluster, made by its `PlacementLearner`."""

    def __init__(
        self,
        cluster: Cluster,
        strategy: PlacementStrategy,
        free_states: FreeStates,
        fragmentation: Fragmentation,
        filters: Filters,
    ) -> None:
        self.strategy = strategy
        self._cluster = cluster
        self._free_states = free_states
        self._filters = filters
        self._signatures = ClaimSignatures()
        self._replies = WorkerReplies()
        """Of no worker: which selectors are too large for a question."""
        policies: tuple[Policy, ...] = (Pack(), Spread(), fragmentation)
        self._rankings: dict[str, Ranking] = {item.name: Ranking(item, free_states) for item in policies}
        self._shapes: LRUCache[object, PodShape] = LRUCache(REMEMBERED_SHAPES)
        self._with_reads: LRUCache[DeviceFilter, bool] = LRUCache(REMEMBERED_SHAPES)
        """Filters whose reads the free states know."""
        self._costly: LRUCache[DeviceFilter, bool] = LRUCache(REMEMBERED_SHAPES)
        self._forced = ""

    def use(self, policy: Policy) -> None:
        """From now on this policy is in force, which may be one that the service does not have."""
        self._rankings[policy.name] = Ranking(policy, self._free_states)
        self._forced = policy.name

    @property
    def evaluations(self) -> int:
        """How often states of a node were compared."""
        return sum(ranking.evaluations for ranking in self._rankings.values())

    def budget(self) -> TurnBudget:
        """The budget of one question. Nothing is deferred to workers."""
        return TurnBudget(self._replies, allowance=TURN, ceiling=CEILING)

    # --- questions --------------------------------------------------------------------------------------------------

    def has_opinion(self, pod: Pod, claims: Sequence[ResourceClaim]) -> bool:
        """False when nothing is to be chosen for the pod: it gets the first devices that fit."""
        return self.policy_of(pod, claims) in self._rankings

    def choose(self, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> str:
        """The node for the pod, of these that fit; empty when the policy has no opinion."""
        known = self._known(names)
        return self._ask(pod, claims, lambda ranking, shape, budget: ranking.best(shape, *known, budget)) or ""

    def chooser(
        self, pod: Pod, claims: Sequence[ResourceClaim], node: str, beside: Sequence[ResourceClaim] = ()
    ) -> DeviceChooser | None:
        """The device chooser for the node; None: the first devices that fit. `beside`: the pod's allocated claims."""
        states = self._free_states
        return self._ask(
            pod,
            claims,
            lambda ranking, shape, budget: DeviceChooser(ranking.policy, states, shape, node, budget, beside),
        )

    def _ask(
        self, pod: Pod, claims: Sequence[ResourceClaim], answer: Callable[[Ranking, PodShape, WorkBudget], T]
    ) -> T | None:
        """The answer of the policy in force, by the shape of the pod; None without one, or when it costs too much."""
        ranking, budget = self._rankings.get(self.policy_of(pod, claims)), self.budget()
        if ranking is None:
            return None
        try:
            shape = self.shape(pod, claims, budget)
            return answer(ranking, shape, budget) if shape is not None else None
        except TurnSpent:
            return None
        except TooCostly as problem:
            self.leave_out(problem.filter)
            return None

    def policy_of(self, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
        """The policy in force for the pod: from its annotation, a class that it asks for, or the default."""
        if self._forced:
            return self._forced
        classes = self._cluster.classes
        named = (classes[name].metadata.annotations for name in class_names(claims) if name in classes)
        return self.strategy.named(chain((pod.metadata.annotations,), named))

    def _known(self, names: Sequence[str]) -> tuple[Sequence[str], Sequence[int]]:
        """Those of the nodes that are known, with their indexes."""
        indexes = list(map(self._cluster.inventory.nodes.index.get, names))
        if None not in indexes:
            return names, cast("list[int]", indexes)
        known = [(name, index) for name, index in zip(names, indexes, strict=True) if index is not None]
        return [name for name, _ in known], [index for _, index in known]

    # --- shapes of pods ---------------------------------------------------------------------------------------------

    @property
    def costly(self) -> Iterable[DeviceFilter]:
        """Filters whose selectors cost too much: pods with one of them get no policy, and others keep theirs."""
        return list(self._costly)

    def leave_out(self, filter: DeviceFilter) -> None:
        """The selectors of this filter cost too much."""
        self._costly[filter] = True

    def shape(self, pod: Pod, claims: Sequence[ResourceClaim], budget: WorkBudget) -> PodShape | None:
        """The shape of the pod; None when its claims are invalid, or their selectors cost too much. Raises TooCostly
        and TurnSpent.
        """
        cluster = self._cluster
        load = load_of(pod)
        key = load, self._signatures.of(claims, budget), cluster.inventory.classes.version
        found = self._shapes.get(key)
        if found is None:
            prepared = prepare(claims, cluster.classes, cluster.features, self._filters, spend=budget.spend)
            if isinstance(prepared, Failure):
                return None
            found = shape_of(load, prepared)
            self._read(found, budget)
            self._shapes[key] = found
        return None if any(filter in self._costly for filter in filters_of(found)) else found

    def _read(self, shape: PodShape, budget: WorkBudget) -> None:
        for filter in filters_of(shape):
            if filter not in self._with_reads:
                try:
                    self._free_states.read(reads_of((filter,), (), budget))
                except Deferred:
                    raise TooCostly(filter) from None
                self._with_reads[filter] = True
