"""What a pod would cost on each node, from a cache that follows what changes.

Promises: the answer is the one that comparing all nodes anew would give, ties by name. After a change only the nodes
it touched are looked at, until the policy weighs anew. `evaluations` counts comparisons of states.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import inf
from typing import Final

from cachetools import LRUCache

from app.placement.podshape import PodShape
from app.placement.policies import Cost, Policy
from app.placement.standing import Standing
from app.placement.state import State

REMEMBERED_SHAPES: Final = 512
_UNKNOWN: Final = -inf


class _Row:
    """The costs of one shape by index of the node."""

    __slots__ = ("costs", "position", "version")

    def __init__(self) -> None:
        self.costs: array[float] = array("d")
        self.position = -1
        self.version: tuple[int, int] = (-1, -1)


class Ranking:
    """Of one policy. Ask for known nodes only."""

    def __init__(self, policy: Policy, standing: Standing) -> None:
        self.policy = policy
        self.evaluations = 0
        self._standing = standing
        self._rows: LRUCache[PodShape, _Row] = LRUCache(REMEMBERED_SHAPES)

    def best(self, shape: PodShape, nodes: Sequence[tuple[str, int]]) -> str:
        """The node, of these names and indexes, that the pod costs least on; empty when there are none."""
        if not nodes:
            return ""
        costs = self.costs(shape, [index for _, index in nodes])
        least = min(costs)
        return min(name for (name, _), cost in zip(nodes, costs, strict=True) if cost == least)

    def costs(self, shape: PodShape, indexes: Sequence[int]) -> list[float]:
        """What the pod costs on each of the nodes with these indexes."""
        row = self._row(shape)
        known = row.costs
        found = list(map(known.__getitem__, indexes))
        position = -1
        for _ in range(found.count(_UNKNOWN)):
            position = found.index(_UNKNOWN, position + 1)
            index = indexes[position]
            found[position] = known[index] = self.cheapest(self._standing.at(index), shape)[0]
        return found

    def _row(self, shape: PodShape) -> _Row:
        standing = self._standing
        standing.catch_up()
        row = self._rows.get(shape)
        if row is None:
            row = self._rows[shape] = _Row()
        version, wanted = (self.policy.version, standing.epoch), standing.size
        noted = standing.changes.since(row.position)
        if row.version != version or noted is None:
            row.costs = array("d", [_UNKNOWN]) * wanted
        else:
            row.costs.extend([_UNKNOWN] * (wanted - len(row.costs)))
            for index in noted:
                row.costs[index] = _UNKNOWN
        row.version, row.position = version, standing.changes.position
        return row

    def cheapest(self, state: State, shape: PodShape) -> Cost:
        """The cost of the best way to take what the pod needs from a node in this state."""
        cpu, memory = state.cpu - shape.cpu, state.memory - shape.memory
        left = state.stock.remainders(shape.need) if shape.need else (state.stock,)
        self.evaluations += len(left)
        return min(self.policy.cost(state, State(stock, cpu, memory, state.whole)) for stock in left)
