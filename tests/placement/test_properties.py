"""What holds for every policy: it changes neither what fits nor which rules count, and never chooses worse devices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from dra_extender.allocation.allocator import PlanChooser
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.scenario import Scenario
from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.events import Applied
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.learner import PlacementLearner
from dra_extender.placement.policies import PlacementStrategy, PolicyName
from tests.support.allocation.checking import violations
from tests.support.allocation.strategies import scenarios
from tests.support.examples import examples

pytestmark = pytest.mark.slow

POD = convert(Pod, {"metadata": {"name": "p", "uid": "p"}})
Answer = Plan | Unfit | Failure


def world(case: dict[str, Any], policy: PolicyName) -> tuple[Scenario, Decisions, PlacementLearner]:
    parts = Scenario(case)
    cluster = Cluster(parts.features)
    for obj in (*parts.classes.values(), parts.node, *parts.slices, *parts.rules, *parts.allocated):
        cluster.apply(Applied(obj))
    shares = iter(range(10**6))
    decisions = Decisions(cluster, share_ids=lambda: f"share-{next(shares)}")
    return parts, decisions, PlacementLearner(cluster, PlacementStrategy(policy=policy))


def decided(case: dict[str, Any], policy: PolicyName) -> tuple[Answer, Answer, PlanChooser | None]:
    """With the first devices that fit, with those of the policy, and who chose them."""
    parts, decisions, learner = world(case, policy)
    learner.learn(POD, parts.claims)
    chooser = learner.placement.chooser(POD, parts.claims, parts.node.name)
    first = decisions.plan(parts.claims, parts.node.name)
    return first, decisions.plan(parts.claims, parts.node.name, chooser), chooser


def devices(answer: Answer) -> list[tuple[str, ...]]:
    if not isinstance(answer, Plan):
        return []
    return [(result.request, *result.id) for item in answer.allocations for result in item.devices.results]


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
@settings(max_examples=examples(150))
@given(case=scenarios())
def test_a_policy_chooses_among_solutions_and_never_a_worse_one(policy: PolicyName, case: dict[str, Any]) -> None:
    first, chosen, chooser = decided(case, policy)
    assert type(first) is type(chosen)
    if isinstance(first, Plan) and isinstance(chosen, Plan):
        assert violations(case, [to_builtins(allocation) for allocation in chosen.allocations]) == []
        if chooser is not None:
            assert chooser.cost(chosen) <= chooser.cost(first)
            assert chosen.steps >= first.steps
    else:
        assert first == chosen


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
@settings(max_examples=examples(50))
@given(case=scenarios())
def test_equal_inputs_give_equal_choices(policy: PolicyName, case: dict[str, Any]) -> None:
    assert devices(decided(case, policy)[1]) == devices(decided(case, policy)[1])


@given(case=scenarios())
def test_first_fit_has_no_opinion(case: dict[str, Any]) -> None:
    parts, _, learner = world(case, "first-fit")
    placement = learner.placement
    assert placement.chooser(POD, parts.claims, parts.node.name) is None
    assert placement.choose(POD, parts.claims, [parts.node.name]) == ""
