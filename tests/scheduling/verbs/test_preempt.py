"""The preempt verb leaves nodes out, and adds victims where pods may be preempted for devices."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from dra_extender.allocation.budget import TurnBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.extender import ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims
from dra_extender.scheduling import gangs
from dra_extender.scheduling.verbs.preempt import Preempt
from dra_extender.scheduling.view import View
from tests.support.counting import lines
from tests.support.scheduling.gangs import gang, nodes
from tests.support.scheduling.nominating import FOUR, ON, full, wanting
from tests.support.scheduling.preempting import Situation, Told
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World

TWO = MetaVictims(Pods=[MetaPod(UID="high"), MetaPod(UID="low")], NumPDBViolations=1)


async def test_a_pod_without_claims_leaves_everything_as_it_is(world: World, small: Objects) -> None:
    world.add(*small)
    given = {"n1": TWO, "unknown": MetaVictims(Pods=[])}
    answer = await world.service().extender.preempt(
        ExtenderPreemptionArgs(Pod=make_pod("p"), NodeNameToMetaVictims=given)
    )
    assert answer.NodeNameToMetaVictims == given


async def test_a_node_where_the_claims_do_not_fit_now_is_left_out(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c", count=2), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    assert await service.bind(world.api.pod("q"), "n1") == ""
    answer = await service.extender.preempt(
        ExtenderPreemptionArgs(Pod=world.api.pod("p"), NodeNameToMetaVictims={"n1": TWO, "n2": TWO, "unknown": TWO})
    )
    assert answer.NodeNameToMetaVictims == {"n2": TWO}


async def test_empty_lists_of_victims_are_fine(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c"))
    answer = await world.service().extender.preempt(
        ExtenderPreemptionArgs(Pod=make_pod("p", "c"), NodeNameToMetaVictims={"n1": MetaVictims(Pods=None)})
    )
    assert answer.NodeNameToMetaVictims == {"n1": MetaVictims(Pods=None)}


async def test_claims_that_cannot_be_decided_on_keep_no_node(world: World, small: Objects) -> None:
    world.add(*small)
    answer = await world.service().extender.preempt(
        ExtenderPreemptionArgs(Pod=make_pod("p", "missing"), NodeNameToMetaVictims={"n1": TWO})
    )
    assert answer.NodeNameToMetaVictims == {}


# --- more victims for devices -----------------------------------------------------------------------------------------


def enlarged(told: Told, *proposed: str, violations: int = 0) -> tuple[str, int] | None:
    """What becomes of these victims on n1: their names, and the violated budgets; None when the node is left out."""
    situation = Situation(told)
    victims = MetaVictims(Pods=[MetaPod(UID=f"uid-{name}") for name in proposed], NumPDBViolations=violations)
    args = ExtenderPreemptionArgs(Pod=situation.preemptor, NodeNameToMetaVictims={"n1": victims})
    found = Preempt(args, situation.terms).answer(situation.view).NodeNameToMetaVictims.get("n1")
    return None if found is None else (names(found), found.NumPDBViolations)


def names(victims: MetaVictims) -> str:
    return " ".join(pod.UID.removeprefix("uid-") for pod in victims.Pods or ())


ONE_EACH: Told = {
    "nodes": {"n1": 3},
    "pods": {
        "cpu": {"priority": 3, "node": "n1"},
        "four": {"priority": 4, "node": "n1", "has": ["d0"], "labels": {"app": "a"}},
        "two": {"priority": 2, "node": "n1", "has": ["d1"], "labels": {"app": "a"}},
        "high": {"priority": 20, "node": "n1", "has": ["d2"]},
    },
}


def test_the_fewest_pods_with_devices_are_added_and_the_most_important_victim_comes_first() -> None:
    assert enlarged(ONE_EACH, "cpu") == ("cpu two", 0)
    assert enlarged({**ONE_EACH, "preemptor": {"wants": 2}}, "cpu") == ("four cpu two", 0)


def test_nobody_is_added_to_victims_that_have_enough_devices_themselves() -> None:
    assert enlarged(ONE_EACH, "four") == ("four", 0)


def test_a_node_where_devices_cannot_be_freed_is_left_out() -> None:
    assert enlarged({**ONE_EACH, "preemptor": {"wants": 3}}, "cpu") is None


def test_budgets_are_counted_on_from_the_victims_that_were_proposed() -> None:
    budgets = {"a": {"allowed": 1, "selects": {"app": "a"}}}
    two = {**ONE_EACH, "budgets": budgets, "preemptor": {"wants": 2}}
    assert enlarged(two, "cpu", violations=7) == ("four cpu two", 8)
    assert enlarged(two, "two") == ("four two", 1)
    assert enlarged({**two, "rules": {"violate_budgets": False}}, "two") is None


def test_only_pods_of_the_node_are_added() -> None:
    told = {"nodes": {"n1": 0, "n2": 0}, "network": 1}
    pods = {"far": {"priority": 1, "node": "n2", "has": ["net/d0"]}, "cpu": {"priority": 1, "node": "n1"}}
    assert enlarged({**told, "pods": pods}, "cpu") is None


def test_a_node_with_a_victim_that_we_do_not_know_is_left_out() -> None:
    assert enlarged(ONE_EACH, "cpu", "stranger") is None


def test_where_nobody_was_proposed_making_room_is_left_to_us() -> None:
    assert enlarged(ONE_EACH) is None
    free = {**ONE_EACH, "nodes": {"n1": 4}}
    assert enlarged(free) == ("", 0)


def test_a_pod_that_must_never_preempt_gets_no_more_victims() -> None:
    assert enlarged({**ONE_EACH, "preemptor": {"policy": "Never"}}, "cpu") is None


def test_without_terms_nobody_is_added() -> None:
    situation = Situation({**ONE_EACH, "rules": {}})
    args = ExtenderPreemptionArgs(
        Pod=situation.preemptor, NodeNameToMetaVictims={"n1": MetaVictims(Pods=[MetaPod(UID="uid-cpu")])}
    )
    assert Preempt(args, None).answer(situation.view).NodeNameToMetaVictims == {}


async def test_with_preemption_on_the_service_adds_victims(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(make_pod("cpu", node="n1", priority=0), *wanting("p", 10))
    await world.settle(1.0)
    given = {"n1": MetaVictims(Pods=[MetaPod(UID="uid-cpu")])}
    args = ExtenderPreemptionArgs(Pod=world.api.pod("p"), NodeNameToMetaVictims=given)
    answer = await service.extender.preempt(args)
    assert {name: names(victims) for name, victims in answer.NodeNameToMetaVictims.items()} == {"n1": "a cpu"}


async def test_while_room_is_made_for_a_pod_nobody_else_makes_more(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.api.stopping["a"] = 20.0
    world.add(*wanting("p", 10))
    assert (await service.filter(world.api.pod("p"))).NodeNames == []
    await world.settle(3.0)
    assert world.api.evicted == ["a"]
    args = ExtenderPreemptionArgs(Pod=world.api.pod("p"), NodeNameToMetaVictims={"n2": TWO})
    assert (await service.extender.preempt(args)).NodeNameToMetaVictims == {}


@pytest.mark.parametrize("allowance", [1, 20, 100])
def test_a_node_on_which_the_last_turn_does_not_decide_is_left_out(allowance: int) -> None:
    told: Told = {"nodes": {"n1": 8}, "pods": {}, "preemptor": {"priority": 10, "wants": 8}}
    for device in range(8):
        told["pods"][f"low-{device}"] = {"priority": 1, "node": "n1", "has": [f"d{device}"]}
    situation = Situation(told)
    budget = TurnBudget(WorkerReplies(), allowance=allowance, ceiling=20_000, last=True)
    victims = {"n1": MetaVictims(Pods=[MetaPod(UID="uid-low-0")])}
    args = ExtenderPreemptionArgs(Pod=situation.preemptor, NodeNameToMetaVictims=victims)
    assert Preempt(args, situation.terms).answer(situation.view.with_budget(budget)).NodeNameToMetaVictims == {}


# --- how much work it is ----------------------------------------------------------------------------------------------

LINES: Final = 5
"""Of Python in a microsecond, which is a unit of work."""


def proposing(world: World, size: int, members: int, nodes_: int) -> tuple[View, Preempt]:
    """A gang of `size` pods, of which `members` exist. One victim without devices is proposed on each node."""
    numbers = range(1, nodes_ + 1)
    victims = [make_pod(f"v{number}", node=f"n{number}", priority=0) for number in numbers]
    service = world.service(*nodes(nodes_, 1), *victims, *gang("g", size, existing=members, priority=100), config=ON)
    proposed = {f"n{number}": MetaVictims(Pods=[MetaPod(UID=f"uid-v{number}")]) for number in numbers}
    pod, extender = world.api.pod("g-0"), service.extender
    args = ExtenderPreemptionArgs(Pod=pod, NodeNameToMetaVictims=proposed)
    return extender.view.with_pod(pod), Preempt(args, extender.terms(pod))


@pytest.mark.parametrize(("members", "kept", "states"), [(8, 20, 1), (7, 0, 0)], ids=["complete", "a pod is missing"])
async def test_the_gang_is_found_once_for_all_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch, members: int, kept: int, states: int
) -> None:
    found = Counter[str]()

    def counting(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            found[name] += 1
            return original(*args)

        monkeypatch.setattr(owner, name, call)

    counting(gangs.gang, "gang_of")
    counting(gangs.controller.Gangs, "state")
    view, preempt = proposing(world, 8, members, 20)
    assert len(preempt.answer(view).NodeNameToMetaVictims) == kept
    assert (found["gang_of"], found["state"]) == (1, states)


@pytest.mark.parametrize(("size", "nodes_", "kept"), [(1, 50, 50), (8, 50, 50), (64, 70, 70), (64, 20, 0)], ids=str)
async def test_the_work_for_a_gang_is_charged_for_each_node(world: World, size: int, nodes_: int, kept: int) -> None:
    view, preempt = proposing(world, size, size, nodes_)
    budget = TurnBudget(WorkerReplies(), allowance=10**9, ceiling=20_000)
    answers: list[ExtenderPreemptionResult] = []
    ran = lines(lambda: answers.append(preempt.answer(view.with_budget(budget))), 10**9, "app")
    assert len(answers[0].NodeNameToMetaVictims) == kept
    assert LINES / 2 < ran / budget.used < 2 * LINES
