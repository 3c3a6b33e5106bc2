"""What a pod would cost on each node, from a cache that follows what changes.

Promises: after a change only the nodes it touched are looked at. A question does a bounded amount of work: where that
is not enough for all nodes, those not looked at yet are left out, and costs by older weights stand in for the newest
ones; the next questions catch up. What is chosen was always compared by the newest weights. On clusters that one
question suffices for, the answer is the one that comparing all nodes anew would give. Ties by name.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import inf
from typing import Final

from cachetools import LRUCache

from dra_extender.placement.account import SHOWN_NODES, NodeAccount
from dra_extender.placement.podshape import PodShape
from dra_extender.placement.policies import Cost, Policy
from dra_extender.placement.standing import Standing
from dra_extender.placement.state import State

REMEMBERED_SHAPES: Final = 512
PORTION: Final = 250_000
"""Work of one question, some 30 milliseconds."""
CANDIDATES: Final = 64
"""How many nodes are compared again by the newest weights when others look better than they are."""

_UNKNOWN: Final = -inf


class _Row:
    """The costs of one shape by index of the node, each by the weights of its version. Nodes before `current` have been
    looked at by the newest ones.
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

    def __init__(self, policy: Policy, standing: Standing) -> None:
        self.policy = policy
        self.evaluations = 0
        """How often states of a node were compared."""
        self._standing = standing
        self._rows: LRUCache[PodShape, _Row] = LRUCache(REMEMBERED_SHAPES)

    def best(self, shape: PodShape, names: Sequence[str], indexes: Sequence[int]) -> str:
        """The node that the pod costs least on, of those with these names and indexes; empty when there are none."""
        if not names:
            return ""
        row = self._row(shape)
        most = self.policy.work + PORTION
        costs = self._costs(row, shape, indexes, most)
        self._renew(row, shape, most)
        for _ in range(CANDIDATES):
            least = min(costs)
            position = costs.index(least)
            index = indexes[position]
            if row.versions[index] == row.version:
                break
            self._look(row, shape, index)
            costs[position] = row.costs[index]
        least = min(costs)
        if costs.count(least) == 1:
            return names[costs.index(least)]
        return min(name for name, cost in zip(names, costs, strict=True) if cost == least)

    def _costs(self, row: _Row, shape: PodShape, indexes: Sequence[int], most: int) -> list[float]:
        """By node; infinite where the work does not suffice."""
        known = row.costs
        found = list(map(known.__getitem__, indexes))
        position = -1
        for done in range(found.count(_UNKNOWN)):
            position = found.index(_UNKNOWN, position + 1)
            if done and self.policy.work >= most:
                found[position] = inf
            else:
                self._look(row, shape, indexes[position])
                found[position] = known[indexes[position]]
        return found

    def _renew(self, row: _Row, shape: PodShape, most: int) -> None:
        """Look at nodes by the newest weights, as far as the work suffices."""
        while row.current < len(row.costs) and self.policy.work < most:
            if row.costs[row.current] != _UNKNOWN and row.versions[row.current] != row.version:
                self._look(row, shape, row.current)
            row.current += 1

    def _look(self, row: _Row, shape: PodShape, index: int) -> None:
        row.costs[index] = self.cheapest(self._standing.at(index), shape)[0]
        row.versions[index] = row.version

    def _row(self, shape: PodShape) -> _Row:
        """The row, without what changed."""
        standing = self._standing
        standing.catch_up()
        row = self._rows.get(shape)
        if row is None:
            row = self._rows[shape] = _Row()
        wanted = standing.size
        noted = standing.changes.since(row.position)
        if row.epoch != standing.epoch or noted is None:
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
        row.epoch, row.version, row.position = standing.epoch, self.policy.version, standing.changes.position
        return row

    def accounts(self, shape: PodShape, names: Sequence[str], indexes: Sequence[int]) -> tuple[NodeAccount, ...]:
        """The best of these nodes, with what they cost and why."""
        self.best(shape, names, indexes)
        row = self._row(shape)
        known = sorted(
            (cost, name, index)
            for name, index in zip(names, indexes, strict=True)
            if (cost := row.costs[index]) != _UNKNOWN
        )
        found: list[NodeAccount] = []
        for _, name, index in known[:SHOWN_NODES]:
            state = self._standing.at(index)
            after = self._best_after(state, shape)
            terms = tuple(self.policy.terms(state, after))
            found.append(NodeAccount(name, self.policy.cost(state, after)[0], terms))
        return tuple(found)

    def cheapest(self, state: State, shape: PodShape) -> Cost:
        """The cost of the best way to take what the pod needs from a node in this state."""
        left = self._left(state, shape)
        self.evaluations += len(left)
        return min(self.policy.cost(state, after) for after in left)

    def _best_after(self, state: State, shape: PodShape) -> State:
        return min(self._left(state, shape), key=lambda after: self.policy.cost(state, after))

    @staticmethod
    def _left(state: State, shape: PodShape) -> list[State]:
        """What may be left of the node."""
        cpu, memory = state.cpu - shape.cpu, state.memory - shape.memory
        stocks = state.stock.remainders(shape.need) if shape.need else (state.stock,)
        return [State(stock, cpu, memory, state.whole) for stock in stocks]
