"""Which of the nodes that refuse a pod could have it if others went."""

from __future__ import annotations

from dra_extender.allocation.budget import TurnBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.preemption.candidates import MOST_DEVICES, MOST_NODES, resolvable
from tests.support.scheduling.nominating import ADVISE, FOUR, ON, full, wanting
from tests.support.scheduling.preempting import Situation, Told, sharing
from tests.support.simulation.objects import Objects, make_node, make_slice
from tests.support.simulation.world import World

LOW = {"priority": 1, "node": "n1", "has": ["d0"]}


def found(told: Told, *nodes: str, allowance: int = 10_000) -> set[str]:
    situation = Situation(told)
    view = situation.view.with_budget(TurnBudget(WorkerReplies(), allowance=allowance, ceiling=20_000))
    prefiltered = pre_filter(view, situation.preemptor)
    assert isinstance(prefiltered, PreFilterState)
    return set(resolvable(view, prefiltered, situation.terms, nodes or situation.nodes))


def test_nodes_with_pods_of_lower_priority_that_have_enough_devices() -> None:
    pods = {"low": LOW, "high": {"priority": 20, "node": "n2", "has": ["d0"]}}
    assert found({"nodes": {"n1": 1, "n2": 1, "n3": 0}, "pods": pods}) == {"n1"}
    assert found({"nodes": {"n1": 1}, "pods": {"low": LOW}, "preemptor": {"wants": 2}}) == set()


def test_nodes_where_pods_are_going() -> None:
    pods = {"going": {**LOW, "deleted": True}, "low": {"priority": 1, "node": "n1"}}
    assert found({"nodes": {"n1": 1}, "pods": pods}) == {"n1"}


def test_no_node_for_a_pod_that_must_not_preempt_or_has_nobody_below() -> None:
    told: Told = {"nodes": {"n1": 1}, "pods": {"low": LOW}}
    assert found({**told, "preemptor": {"policy": "Never"}}) == set()
    assert found({**told, "preemptor": {"priority": 1}}) == set()


def test_nodes_that_are_not_looked_at_count_as_those_where_it_may_help() -> None:
    nodes = {f"n{index:04}": 0 for index in range(MOST_NODES + 10)}
    pods = {"low": {"priority": 1, "node": "n0000"}}
    assert found({"nodes": nodes, "pods": pods}) == set(list(nodes)[MOST_NODES:])
    pods = {f"p{index}": {"priority": 1, "node": "n1", "has": [f"d{index}"]} for index in range(MOST_DEVICES + 1)}
    told = {"nodes": {"n1": 0, "n2": 0}, "network": MOST_DEVICES + 1}
    held = {name: {**pod, "has": [f"net/d{index}"]} for index, (name, pod) in enumerate(pods.items())}
    assert found({**told, "pods": held, "preemptor": {"wants": [{"requests": []}]}}) == {"n1", "n2"}
    assert found(sharing(1, MOST_DEVICES, wants=2000)) == set()
    assert found(sharing(1, MOST_DEVICES + 1, wants=2000)) == {"n0"}


def test_when_the_turn_is_over_it_may_help_anywhere() -> None:
    assert found({"nodes": {"n1": 1, "n2": 0}, "pods": {"low": LOW}}, allowance=0) == {"n1", "n2"}


# --- what filter answers ----------------------------------------------------------------------------------------------


async def test_filter_tells_pressure_that_evictions_resolve_from_what_they_do_not(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(make_node("n3"), make_node("n4"), make_slice("n4", []), *wanting("p", 10))
    await world.settle(0.5)
    for _ in range(2):
        answer = await service.filter(world.api.pod("p"))
        assert (answer.NodeNames, set(answer.FailedNodes)) == ([], {"n1", "n2"})
        assert set(answer.FailedAndUnresolvableNodes) == {"n3", "n4"}


async def test_filter_calls_nothing_resolvable_for_pods_that_take_nothing_from_others(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("equal", 1), *wanting("never", 10, preemptionPolicy="Never"))
    await world.settle(0.5)
    for name in ("equal", "never"):
        assert not (await service.filter(world.api.pod(name))).FailedNodes


async def test_filter_calls_nothing_resolvable_while_preemption_is_not_on(world: World, small: Objects) -> None:
    assert ON.preemption == "on"
    service = await full(world, small, FOUR, config=ADVISE)
    world.add(*wanting("p", 10))
    await world.settle(0.5)
    assert not (await service.filter(world.api.pod("p"))).FailedNodes
