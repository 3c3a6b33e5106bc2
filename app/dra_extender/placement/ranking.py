"""What a pod would cost on each node, from a cache that follows changes.

Promises: after a change only the costs of the nodes it touched are computed again. A question does a bounded amount of
work: if that is not enough for all nodes, nodes without a cost are left out and some costs are by older weights; the
next questions continue from there. The chosen node is always compared by the newest weights. If one question is enough
for all nodes, the answer equals comparing all of them again. Ties by name.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Final

from cachetools import LRUCache

from dra_extender.allocation.budget import TurnSpent, WorkBudget
from dra_extender.placement.freestates import FreeStates, NodeFreeState
from dra_extender.placement.podshape import PodShape
from dra_extender.placement.policies import Cost, Policy

REMEMBERED_SHAPES: Final = 512
PORTION: Final = 250_000
"""Work of one question, some 30 milliseconds."""
CANDIDATES: Final = 64
"""How many nodes are compared again by the newest weights when others look better than they are."""

_UNKNOWN: Final = -inf


class _ShapeCosts:
    """The costs of one shape by index of the node, each by the weights of its version. Nodes before `current` have
    costs by the newest ones.
    """

    __slots__ = ("costs", "current", "epoch", "position", "version", "versions")

    def __init__(self) -> None:
        self.costs: array[float] = array("d")
        self.versions: array[int] = array("L")
        self.position = -1
        self.version = -1
        self.epoch = -1
        self.current = 0


class Ranking:
    """Of one policy. Ask for known nodes only."""

    def __init__(self, policy: Policy, free_states: FreeStates) -> None:
        self.policy = policy
        self.evaluations = 0
        """How often states of a node were compared."""
        self._free_states = free_states
        self._rows: LRUCache[PodShape, _ShapeCosts] = LRUCache(REMEMBERED_SHAPES)

    def best(self, shape: PodShape, names: Sequence[str], indexes: Sequence[int], budget: WorkBudget) -> str:
        """The cheapest node for the pod, of those with these names and indexes; empty without nodes."""
        if not names:
            return ""
        row = self._row(shape)
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
        row.costs[index] = self.cheapest(self._free_states.at(index), shape, budget)[0]
        row.versions[index] = row.version

    def _row(self, shape: PodShape) -> _ShapeCosts:
        """The row, without what changed."""
        free_states = self._free_states
        free_states.catch_up()
        row = self._rows.get(shape)
        if row is None:
            row = self._rows[shape] = _ShapeCosts()
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

    def cheapest(self, state: NodeFreeState, shape: PodShape, budget: WorkBudget) -> Cost:
        """The cost of the best way to take what the pod needs from a node in this state."""
        left = self._left(state, shape, budget)
        self.evaluations += len(left)
        return min(self.policy.cost(state, after, budget) for after in left)

    @staticmethod
    def _left(state: NodeFreeState, shape: PodShape, budget: WorkBudget) -> list[NodeFreeState]:
        """What may be left of the node."""
        cpu, memory = state.cpu - shape.cpu, state.memory - shape.memory
        left = state.devices.remainders(shape.need, budget) if shape.need else (state.devices,)
        return [NodeFreeState(devices, cpu, memory, state.whole) for devices in left]
