"""Claims without requests get no devices: what they cost a gang that names them, and the pods of others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dra_extender.allocation.budget import CallState, TurnBudget, TurnSpent
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.gangs.decision import GangDecision
from dra_extender.scheduling.gangs.gang import gang_with_devices
from tests.support.counting import calls
from tests.support.scheduling.gangs import member, nodes, offered
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World


def without_requests(size: int, count: int) -> Objects:
    """A gang. Each of its pods has `count` claims without requests."""
    found: list[Any] = []
    for index in range(size):
        claims = [make_claim(f"g-{index}-{number}", requests=[]) for number in range(count)]
        found += [*claims, member(f"g-{index}", *(each.metadata.name for each in claims), size=size)]
    return found


async def test_claims_without_requests_of_a_gang_are_charged(world: World) -> None:
    """15 pods with 1,000 of them each took 0.9 s in one turn."""
    service, call, counts = world.service(*nodes(1, 1), *without_requests(15, 1_000)), CallState(), list[int]()

    def turn() -> None:
        budget = TurnBudget(WorkerReplies(), allowance=10_000, ceiling=20_000, call=call)
        view = service.extender.view.with_budget(budget)
        with suppress(TurnSpent):
            gang, prefiltered = gang_with_devices(view, pod), pre_filter(view, pod)
            assert gang is not None and isinstance(prefiltered, PreFilterState)
            found.append(service.extender.gangs.decide(view, gang, prefiltered, ["n1"]))

    pod, found = world.api.pod("g-0"), list[GangDecision]()
    while not found:
        counts.append(calls(turn))
    assert max(counts) < 600_000


async def test_claims_of_a_gang_that_get_no_devices_are_not_held(world: World) -> None:
    """With 60 gangs that named 1,000 of them, each call of others took 0.2 s."""
    claims = [make_claim(f"c-{index}", requests=[]) for index in range(60)]
    pods = [member(f"g-{index}", *(each.metadata.name for each in claims), "own") for index in range(2)]
    service = world.service(*nodes(1, 1), *claims, make_claim("own"), *pods, make_pod("p"))
    assert await offered(service, world, "g-0") == [["n1"]]
    assert len(service.extender.view.kept(world.api.pod("p"))) == 1
