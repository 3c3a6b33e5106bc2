"""Answers placement questions of the verbs and of insight: the node for a pod, and its devices, by the policy in force.

Promises: an answer depends on the cluster and on what `PlacementLearner` has learned; a question changes neither. Each
question evaluates selectors and compares devices in a work budget of its own. Where that does not suffice, the pod gets
the first devices that fit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Final, TypeVar
from weakref import WeakSet, ref

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
from dra_extender.placement.podshape import REMEMBERED_BYTES, PodShape, filters_of, load_of, shape_of
from dra_extender.placement.policies import Allocated, Fragmentation, PlacementStrategy, Policy

T = TypeVar("T")

FIRST_FIT: Final = PlacementStrategy()

TURN: Final = 10_000
"""Units of work, about a microsecond each, that selectors and comparing devices may take for one question,"""
CEILING: Final = 2_000
"""and one selector on one device."""

RANKED_SHAPES: Final = 512
PORTION: Final = 250_000
"""Work of one question, some 30 milliseconds."""
CANDIDATES: Final = 64
"""How many nodes are compared again by the newest weights when others look better than they are."""

_UNKNOWN: Final = -inf


@dataclass(slots=True, eq=False)
class _ShapeCosts:
    """The costs of one shape by index of the node, each by the weights of its version. Nodes before `current` have
    costs by the newest ones.
    """

    costs: array[float] = field(default_factory=lambda: array("d"))
    versions: array[int] = field(default_factory=lambda: array("L"))
    position: int = -1
    version: int = -1
    epoch: int = -1
    current: int = 0


class Ranking:
    """What a pod would cost on each node, by one policy, from a cache that follows changes. Ask for known nodes only.

    Promises: after a change only the costs of the nodes it touched are computed again. A question does a bounded amount
    of work: if that is not enough for all nodes, nodes without a cost are left out and some costs are by older weights;
    the next questions continue from there. The chosen node is always compared by the newest weights. If one question is
    enough for all nodes, the answer equals comparing all of them again. Ties by name.
    """

    def __init__(self, policy: Policy, free_states: FreeStates) -> None:
        self.policy = policy
        self.evaluations = 0
        """How often states of a node were compared."""
        self._free_states = free_states
        self._rows: LRUCache[ref[PodShape], _ShapeCosts] = LRUCache(RANKED_SHAPES)

    def best(self, shape: PodShape, names: Sequence[str], indexes: Sequence[int], budget: WorkBudget) -> str:
        """The cheapest node for the pod, of those with these names and indexes; empty without nodes."""
        if not names:
            return ""
        row = self._row(shape, budget)
        most = self.policy.work + PORTION
        costs = self._costs(row, shape, indexes, most, budget)
        with suppress(TurnSpent):
            self._renew(row, shape, most, budget)
        for _ in range(CANDIDATES):
            least = min(costs)
            position = costs.index(least)
            index = indexes[position]
            if row.versions[index] == row.version:
                break
            self._compute(row, shape, index, budget)
            costs[position] = row.costs[index]
        least = min(costs)
        if costs.count(least) == 1:
            return names[costs.index(least)]
        return min(name for name, cost in zip(names, costs, strict=True) if cost == least)

    def _costs(
        self, row: _ShapeCosts, shape: PodShape, indexes: Sequence[int], most: int, budget: WorkBudget
    ) -> list[float]:
        """By node; infinite where work or budget do not suffice. Raises TurnSpent when they suffice for no node."""
        known = row.costs
        found = list(map(known.__getitem__, indexes))
        position = -1
        for done in range(found.count(_UNKNOWN)):
            position = found.index(_UNKNOWN, position + 1)
            if done and self.policy.work >= most:
                found[position] = inf
                continue
            try:
                self._compute(row, shape, indexes[position], budget)
            except TurnSpent:
                if not done:
                    raise
                most, found[position] = 0, inf
            else:
                found[position] = known[indexes[position]]
        return found

    def _renew(self, row: _ShapeCosts, shape: PodShape, most: int, budget: WorkBudget) -> None:
        """Compute costs by the newest weights, as far as the work suffices."""
        while row.current < len(row.costs) and self.policy.work < most:
            if row.costs[row.current] != _UNKNOWN and row.versions[row.current] != row.version:
                self._compute(row, shape, row.current, budget)
            row.current += 1

    def _compute(self, row: _ShapeCosts, shape: PodShape, index: int, budget: WorkBudget) -> None:
        """The cost of the best way to take what the pod needs from the node."""
        state = self._free_states.at(index, budget)
        left = state.devices.remainders(shape.need, budget)
        self.evaluations += len(left)
        row.costs[index] = min(self.policy.cost(state, state.after(devices, shape), budget) for devices in left)[0]
        row.versions[index] = row.version

    def _row(self, shape: PodShape, budget: WorkBudget) -> _ShapeCosts:
        """The row, without what changed. Raises TurnSpent."""
        free_states = self._free_states
        free_states.catch_up(budget)
        row = self._rows.get(ref(shape))
        if row is None:
            row = self._rows[ref(shape)] = _ShapeCosts()
        wanted = free_states.size
        noted = free_states.changes.since(row.position)
        if row.epoch != free_states.epoch or noted is None:
            row.costs = array("d", [_UNKNOWN]) * wanted
            row.versions = array("L", [0]) * wanted
        else:
            missing = wanted - len(row.costs)
            row.costs.extend([_UNKNOWN] * missing)
            row.versions.extend([0] * missing)
            for index in noted:
                row.costs[index] = _UNKNOWN
        if row.version != self.policy.version:
            row.current = 0
        row.epoch, row.version, row.position = free_states.epoch, self.policy.version, free_states.changes.position
        return row


@dataclass(eq=False)
class Placement:
    """One per cluster, made by its `PlacementLearner`."""

    _cluster: Cluster
    strategy: PlacementStrategy
    _free_states: FreeStates
    _fragmentation: Fragmentation
    _filters: Filters

    def __post_init__(self) -> None:
        self._signatures = ClaimSignatures()
        self._replies = WorkerReplies()
        """Of no worker: which selectors are too large for a question."""
        policies: tuple[Policy, ...] = (Allocated("pack", -1), Allocated("spread", 1), self._fragmentation)
        self.rankings: dict[str, Ranking] = {item.name: Ranking(item, self._free_states) for item in policies}
        self._shapes: LRUCache[object, PodShape] = LRUCache(REMEMBERED_BYTES, lambda shape: shape.size)
        self.costly: WeakSet[DeviceFilter] = WeakSet()
        """Filters whose selectors cost too much: pods with one of them get no policy, and others keep theirs."""

    def budget(self) -> TurnBudget:
        """The budget of one question. Nothing is deferred to workers."""
        return TurnBudget(self._replies, allowance=TURN, ceiling=CEILING)

    def has_opinion(self, pod: Pod, claims: Sequence[ResourceClaim]) -> bool:
        """False when nothing is to be chosen for the pod: it gets the first devices that fit."""
        return self.policy_of(pod, claims) in self.rankings

    def choose(self, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> str:
        """The node for the pod, of these that fit; empty when the policy has no opinion."""
        index = self._cluster.inventory.nodes.index
        known = [name for name in names if name in index]
        indexes = list(map(index.__getitem__, known))
        return self._ask(pod, claims, lambda ranking, shape, budget: ranking.best(shape, known, indexes, budget)) or ""

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
        ranking, budget = self.rankings.get(self.policy_of(pod, claims)), self.budget()
        if ranking is None:
            return None
        try:
            shape = self.shape(pod, claims, budget)
            return answer(ranking, shape, budget) if shape is not None else None
        except TurnSpent:
            pass
        except TooCostly as problem:
            self.costly.add(problem.filter)
        return None

    def policy_of(self, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
        """The policy in force for the pod: from its annotation, a class that it asks for, or the default."""
        classes = self._cluster.classes
        named = (classes[name].metadata.annotations for name in class_names(claims) if name in classes)
        return self.strategy.named(chain((pod.metadata.annotations,), named))

    def shape(self, pod: Pod, claims: Sequence[ResourceClaim], budget: WorkBudget) -> PodShape | None:
        """The shape of the pod; None when its claims are invalid. Raises TooCostly and TurnSpent."""
        cluster = self._cluster
        load = load_of(pod)
        key = load, self._signatures.of(claims, budget), cluster.inventory.classes.version
        found = self._shapes.get(key)
        if found is None:
            prepared = prepare(claims, cluster.classes, cluster.features, self._filters, spend=budget.spend)
            if isinstance(prepared, Failure):
                return None
            found = self._shapes[key] = shape_of(load, prepared)
        self.read(found, budget)
        return found

    def read(self, shape: PodShape, budget: WorkBudget) -> None:
        """Tell devices apart by what the selectors of the shape read. Raises TooCostly and TurnSpent."""
        for filter in filters_of(shape):
            budget.spend(1)
            try:
                if filter in self.costly or not self._free_states.read(reads_of((filter,), (), budget), budget):
                    raise TooCostly(filter)
            except Deferred:
                raise TooCostly(filter) from None
