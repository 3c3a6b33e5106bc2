"""The turns of a call go on where they stopped, also on nodes that differ because a device that they see is planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dra_extender.allocation.budget import CallState, TurnBudget, TurnSpent
from dra_extender.allocation.cache.results import NODE
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.events import Removed
from dra_extender.devices.holdings import PoolState, PoolStates
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.devices.pools import Pool
from dra_extender.devices.usage import PoolHoldings
from tests.support.allocation.manynodes import World, exactly, planned, wanted

NODES = 30
NODES_OF_TURN = 10
MOST_TURNS = 20
TWO = [wanted(exactly(2))]

Question = Callable[[Decisions, World], Any]


class Call:
    """Calls in a world in which all nodes see the pool `fabric`, every other node has a device of its own, and one of
    the two devices of `fabric` is planned for a gang.
    """

    def __init__(self, question: Question) -> None:
        self.world = World()
        for number in range(NODES):
            self.world.add_node(*[{}] * (number % 2))
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu", "pool": pool, "allNodes": True}
        self.world.put_slice("fabric", {**spec, "devices": [{"name": "d0"}, {"name": "d1"}]})
        self.plans: list[Planned] = [planned("gang", "fabric", "d0")]
        self.gone = wanted(name="gone")
        self.turns: list[int] = []
        self._question = question
        self._state = CallState()

    def fresh(self) -> Any:
        """The answer of decisions that remember nothing."""
        return self._ask(self.world.decisions.on(self.world.cluster))

    def begin(self) -> None:
        self.turns, self._state = [], CallState()

    def turn(self) -> Any:
        """The answer; None when the turn is spent before."""
        allowance = NODES_OF_TURN * NODE
        budget = TurnBudget(WorkerReplies(), allowance=allowance, ceiling=10_000, call=self._state)
        try:
            return self._ask(self.world.decisions.with_budget(budget))
        except TurnSpent:
            return None
        finally:
            self.turns.append(budget.used)

    def finish(self) -> Any:
        while (found := self.turn()) is None:
            assert len(self.turns) < MOST_TURNS, "no end in sight"
        return found

    def _ask(self, decisions: Decisions) -> Any:
        overlay = Overlay(self.world.cluster).without([self.gone]).holding(self.plans)
        return self._question(decisions.with_state(overlay), self.world)


QUESTIONS: dict[str, Question] = {
    "results": lambda decisions, world: decisions.node_results(TWO, world.names),
    "scores": lambda decisions, world: decisions.scores(TWO, world.names),
    "classes": lambda decisions, world: list(decisions.classes(TWO, list(world.cluster.nodes))),
}


@pytest.fixture(params=list(QUESTIONS.values()), ids=list(QUESTIONS))
def call(request: pytest.FixtureRequest) -> Call:
    return Call(request.param)


def test_a_call_looks_once_at_each_node_that_differs(call: Call) -> None:
    call.finish()
    for _ in range(2):
        call.begin()
        assert call.finish() == call.fresh()
        assert call.turns == [NODES_OF_TURN * NODE] * (NODES // NODES_OF_TURN)


def test_what_a_planned_pool_holds_is_computed_once_in_a_turn(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call.finish()
    call.begin()
    computed: list[str] = []
    of = PoolStates.of

    def count(states: PoolStates, pool: Pool, held: PoolHoldings | None) -> PoolState:
        computed.append(pool.id[1])
        return of(states, pool, held)

    monkeypatch.setattr(PoolStates, "of", count)
    call.finish()
    assert computed == ["fabric"] * len(call.turns)


def test_a_key_of_a_state_with_a_plan_is_not_used_when_the_plan_has_ended() -> None:
    """The first turn does not know yet which nodes see the pool."""
    call = Call(QUESTIONS["classes"])
    call.turn()
    call.plans.clear()
    assert call.finish() == call.fresh()


def _replace(call: Call) -> None:
    call.world.cluster.apply(Removed.of(call.world.cluster.nodes["n1"]))
    call.world.add_node()


def _hand_over(call: Call) -> None:
    call.world.take("gone", "n1")
    call.world.take("c", "n1", "d0")


CHANGES: dict[str, Callable[[Call], object]] = {
    "the other device of the pool is allocated": lambda call: call.world.take("c", "fabric", "d1"),
    "the planned device is allocated": lambda call: call.world.take("gang", "fabric", "d0"),
    "the other device is planned as well": lambda call: call.plans.append(planned("c", "fabric", "d1")),
    "the plan ends": lambda call: call.plans.clear(),
    "a node's own device is allocated": lambda call: call.world.take("c", "n1", "d0"),
    "a node's own device is planned": lambda call: call.plans.append(planned("c", "n1", "d0")),
    "a node gets a device": lambda call: call.world.publish("n2", {}),
    "the pool goes": lambda call: call.world.withdraw("fabric"),
    "a node is replaced": _replace,
    "a device of a claim that counts as gone gets another owner": _hand_over,
}


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_answer_is_that_of_the_state_in_which_the_call_ends(
    call: Call, change: Callable[[Call], object], turns: int
) -> None:
    call.world.take("gone", "n1", "d0")
    call.finish()
    call.begin()
    assert [call.turn() for _ in range(turns)] == [None] * turns
    change(call)
    assert call.finish() == call.fresh()
