"""The victims of a gang against a reference that tries every set of pods."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from dra_extender.allocation.budget import CallState, TurnBudget, TurnSpent
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.core import PodDisruptionBudget
from dra_extender.api.decoding import convert
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import Preemption, PreemptionTerms
from dra_extender.scheduling.preemption.victims import OFFSET, cost
from dra_extender.scheduling.view import View
from tests.support.scheduling.jointreference import (
    Claim,
    Holder,
    Item,
    JointScenario,
    generate_full,
    least_victims,
)
from tests.support.scheduling.jointworld import view_of
from tests.support.scheduling.preempting import by_namespace

CASES = int(os.environ.get("GANG_CASES", "400"))


def terms_of(view: View, scenario: JointScenario) -> PreemptionTerms:
    preemptor = view.pods.named("default", "p0")
    assert preemptor is not None
    spec = {"selector": {"matchLabels": {"app": "protected"}}}
    status = {"disruptionsAllowed": scenario.allowed}
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": status}
    return PreemptionTerms(
        preemptor=preemptor,
        violate_budgets=False,
        budgets=by_namespace([convert(PodDisruptionBudget, budget)]),
    )


def check(seed: int) -> str:
    scenario = generate_full(seed)
    view = view_of(scenario)
    found = PreemptionEvaluator(terms_of(view, scenario), scenario.nodes).evaluate(view)
    expected = least_victims(scenario)
    if expected is None or not expected[2]:
        why = "hopeless" if expected is None else "fits"
        assert not isinstance(found, Preemption), (seed, scenario, found)
        assert found.why == why, (seed, scenario, found)
        return why
    assert isinstance(found, Preemption), (seed, scenario, found, expected)
    _, highest, total, count, *_ = cost("", found.victims)
    assert (highest, total - count * OFFSET, count) == expected, (seed, scenario, found.victims)
    return "preempts"


@pytest.mark.parametrize("part", range(4))
async def test_the_victims_are_those_that_cost_least(part: int) -> None:
    outcomes = Counter([check(seed) for seed in range(part * CASES // 4, (part + 1) * CASES // 4)])
    assert min(outcomes["fits"], outcomes["hopeless"], outcomes["preempts"]) > CASES // 400


def test_a_gang_finds_its_victims_among_a_thousand_pods_in_a_hundred_turns() -> None:
    """32 pods that need whole nodes: twelve of 512 nodes are free, all others have two pods."""
    nodes, size = tuple(f"n{number:03}" for number in range(512)), 32
    scenario = JointScenario(
        nodes=nodes,
        devices=tuple(Item(f"d{number}", nodes[number // 2], "a") for number in range(1024)),
        units={},
        claims=tuple(Claim(f"c{number}", ((("a", 2),),)) for number in range(size)),
        members=tuple((f"c{number}",) for number in range(size)),
        needed=size,
        holders=tuple(Holder(f"h{number}", nodes[number // 2], number % 3, (f"d{number}",)) for number in range(1000)),
    )
    view, call, found = view_of(scenario), CallState(), None
    evaluator, turns = PreemptionEvaluator(terms_of(view, scenario), nodes), 0
    while found is None:
        turns += 1
        budget = TurnBudget(
            WorkerReplies(), allowance=view.config.turn_work, ceiling=view.config.question_work, call=call
        )
        try:
            found = evaluator.evaluate(view.with_budget(budget))
        except TurnSpent:
            assert turns < 100
    assert isinstance(found, Preemption)
    assert len(found.victims) == 2 * (size - 12)
    assert len(found.nodes) == size
