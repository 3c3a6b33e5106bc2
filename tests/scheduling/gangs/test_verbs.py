"""Gangs in filter and bind: all members of a gang get their devices, or none does."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Counter, CounterSet, ResourceClaim
from tests.support.scheduling.gangs import allocated, gang, member, names, nodes, offered, reasons, schedule
from tests.support.simulation.objects import (
    Json,
    Objects,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import World

NO_ROOM = "cannot allocate all claims"


async def test_a_gang_that_does_not_fit_holds_nothing(world: World) -> None:
    service = world.service(*nodes(1, 1), *gang("g", 2))
    assert await offered(service, world, "g-0", "g-1") == [[], []]
    assert await reasons(service, world, "g-0") == {f"gang default/g: 1 of 2 pods fit together: {NO_ROOM}"}
    assert len(service.extender.gangs.plans) == 0


async def test_a_single_pod_gets_what_a_gang_cannot_use(world: World) -> None:
    service = world.service(*nodes(1, 1), *gang("g", 2), make_claim("c"), make_pod("single", "c"))
    assert await offered(service, world, "g-0", "single") == [[], ["n1"]]


async def test_members_share_a_node_and_then_the_next_one(world: World) -> None:
    service = world.service(*nodes(2, 2), *gang("g", 3))
    assert sorted(map(tuple, await offered(service, world, *names("g", 3)))) == [("n1",), ("n1",), ("n2",)]


async def test_all_members_are_bound_with_devices_of_their_own(world: World) -> None:
    service = world.service(*nodes(2, 2), *gang("g", 4))
    assert len(await schedule(service, world, names("g", 4))) == 4
    assert allocated(world) == names("g", 4)
    assert world.api.doubles() == []
    await world.settle(1.0)
    assert len(service.extender.gangs.plans) == 0


async def test_devices_of_a_plan_are_in_use_for_other_pods(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("single", "c"))
    assert await offered(service, world, "g-0", "single", "g-1") == [["n1"], [], ["n1"]]
    assert await service.bind(world.api.pod("single"), "n1") == NO_ROOM


@pytest.mark.parametrize(("priority", "nodes_of_single"), [(-1, []), (0, []), (1, ["n1"])])
async def test_devices_of_a_plan_are_free_for_pods_of_higher_priority(
    world: World, priority: int, nodes_of_single: list[str]
) -> None:
    single = make_pod("single", "c", priority=priority)
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), single)
    assert await offered(service, world, "g-0", "single") == [["n1"], nodes_of_single]
    assert (await service.bind(world.api.pod("single"), "n1") == "") is bool(nodes_of_single)


async def test_a_gang_of_higher_priority_gets_what_a_plan_holds_and_the_other_gang_waits(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("a", 2), *gang("b", 2, priority=1))
    assert await offered(service, world, "a-0", "b-0", "b-1") == [["n1"], ["n1"], ["n1"]]
    assert [await service.bind(world.api.pod(pod), "n1") for pod in ("b-0", "b-1")] == ["", ""]
    await world.settle(1.0)
    assert await offered(service, world, "a-0", "a-1") == [[], []]


async def test_of_two_gangs_one_is_complete_and_the_other_holds_nothing(world: World) -> None:
    service = world.service(*nodes(3, 4), *gang("a", 8), *gang("b", 8))
    mixed = [name for pair in zip(names("a", 8), names("b", 8), strict=True) for name in pair]
    assert sorted(await schedule(service, world, mixed)) == names("a", 8)
    assert allocated(world) == names("a", 8)
    for pod in names("a", 8):
        world.api.delete_pod(pod)
        world.api.drop(world.api.claim(pod))
    await world.settle(1.0)
    assert sorted(await schedule(service, world, names("b", 8))) == names("b", 8)


@pytest.mark.parametrize("order", list(permutations(["a-0", "a-1", "b-0", "b-1"])))
async def test_in_every_order_of_calls_one_gang_gets_all_and_the_other_nothing(
    world: World, order: tuple[str, ...]
) -> None:
    service = world.service(*nodes(1, 3), *gang("a", 2), *gang("b", 2))
    bound = set(await schedule(service, world, order))
    assert bound in ({"a-0", "a-1"}, {"b-0", "b-1"})
    assert allocated(world) == sorted(bound)


def whole_or_half(name: str) -> ResourceClaim:
    alternatives: list[Json] = [
        {
            "name": kind,
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": 1,
            "selectors": [{"cel": {"expression": f"device.attributes['gpu.example.com'].kind == '{kind}'"}}],
        }
        for kind in ("whole", "half")
    ]
    return make_claim(name, requests=[{"name": "r", "firstAvailable": alternatives}])


def divisible() -> Objects:
    """One GPU as a whole or as two halves, which share a counter."""

    def part(name: str, kind: str, units: str) -> Json:
        return {
            "name": name,
            "attributes": {"kind": {"string": kind}},
            "consumesCounters": [{"counterSet": "gpu", "counters": {"units": {"value": units}}}],
        }

    devices = make_slice(
        "n1", [part("whole", "whole", "2"), part("half-0", "half", "1"), part("half-1", "half", "1")], count=2
    )
    counters = make_slice("n1", [], part="-counters", count=2)
    offered = (CounterSet("gpu", {"units": Counter(Quantity.parse("2"))}),)
    return [
        make_class(),
        make_node("n1"),
        devices,
        replace(counters, spec=replace(counters.spec, shared_counters=offered)),
    ]


def devices_of(world: World, claim: str) -> list[str]:
    allocation = world.api.claim(claim).allocation
    return [result.device for result in allocation.devices.results] if allocation is not None else []


async def test_members_choose_alternatives_so_that_all_fit(world: World) -> None:
    """kubernetes#138765: one after the other, the first member takes the whole GPU and the second never fits."""
    claims = [whole_or_half("g-0"), whole_or_half("g-1")]
    pods = [member("g-0", "g-0"), member("g-1", "g-1")]
    service = world.service(*divisible(), *claims, *pods)
    assert await schedule(service, world, ["g-0", "g-1"]) == {"g-0": "n1", "g-1": "n1"}
    assert devices_of(world, "g-0") + devices_of(world, "g-1") == ["half-0", "half-1"]


async def test_a_pod_alone_gets_its_first_alternative(world: World) -> None:
    service = world.service(*divisible(), whole_or_half("c"), make_pod("p", "c"))
    assert await schedule(service, world, ["p"]) == {"p": "n1"}
    assert devices_of(world, "c") == ["whole"]


async def test_members_with_an_extended_resource_share_the_devices_of_a_node(world: World) -> None:
    request = [{"name": "main", "resources": {"requests": {"example.com/gpu": "2"}}}]
    members = [member(name, containers=request) for name in names("g", 2)]
    service = world.service(
        make_class(resource="example.com/gpu"), make_node("n1"), make_slice("n1", ["a", "b", "c", "d"]), *members
    )
    assert await schedule(service, world, names("g", 2)) == {"g-0": "n1", "g-1": "n1"}
