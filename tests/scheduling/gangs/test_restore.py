"""A new leader goes on with the gangs that the previous one has begun to bind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.api.groups import GANG, GANG_SIZE, GroupKey
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.gangs.controller import Gangs
from dra_extender.scheduling.gangs.decision import GangDecision
from dra_extender.scheduling.gangs.gang import Gang
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.nomination.controller import RESTORE_SECONDS
from dra_extender.scheduling.view import View
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.counting import calls
from tests.support.scheduling.gangs import gang, member, names, nodes, offered, schedule
from tests.support.simulation.objects import (
    Objects,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World, replay
from tests.support.unexpected import Reports

NEVER = SchedulingConfig(nominate="never")


async def succeeded(world: World, service: Service, seconds: Callable[[Any], float] = lambda _: 0.1) -> Service:
    """The next leader, after the first one was killed. `seconds`: that a worker needs for a request."""
    await service.kill()
    found = world.service(config=NEVER, workers=VirtualWorkers(seconds))
    found.start()
    return found


async def half_bound(world: World, service: Service) -> Service:
    """The next leader, after g-0 of gang g was bound to n1. Pod `other` waits for a device, too."""
    service.start()
    assert await offered(service, world, "g-0") == [["n1"]]
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("other", "c"))
    return await succeeded(world, service)


@pytest.mark.parametrize("priority", [0, 5])
async def test_pods_of_a_gang_that_is_half_bound_keep_their_devices(world: World, priority: int) -> None:
    """Another pod got the device of the third one, so half of the gang ran, and kept its devices, for ever."""
    service = world.service(*nodes(2, 2), *gang("g", 4, priority=5), config=NEVER)
    service.start()
    chosen = await offered(service, world, *names("g", 4))
    assert await service.bind(world.api.pod("g-0"), chosen[0][0]) == ""
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("other", "c", priority=priority))
    service = await succeeded(world, service)
    assert await offered(service, world, "other") == [[]]
    assert len(await schedule(service, world, names("g", 4)[1:])) == 3


async def test_the_next_leader_waits_for_the_selectors_of_such_a_gang(world: World) -> None:
    claims = [selecting(name, LOOPS) for name in names("g", 2)]
    pods = [member(name, name) for name in names("g", 2)]
    service = world.service(*nodes(1, 2), *claims, *pods, config=NEVER)
    service.start()
    assert await service.bind(world.api.pod("g-0"), (await offered(service, world, "g-0"))[0][0]) == ""
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("other", "c"))
    service = await succeeded(world, service)
    assert await offered(service, world, "other") == [[]]
    assert len(await schedule(service, world, ["g-1"])) == 1


@pytest.mark.parametrize("cannot", ["is gated", "is deleted", "has no claim"])
async def test_a_pod_that_cannot_be_placed_does_not_keep_the_others_from_their_plan(world: World, cannot: str) -> None:
    claims = [make_claim(name) for name in names("g", 4) if cannot != "has no claim" or name != "g-1"]
    pods = [member(name, name, size=3) for name in names("g", 4)]
    if cannot == "is gated":
        pods[1] = replace(pods[1], spec=replace(pods[1].spec, scheduling_gates=({"name": "x"},)))
    service = world.service(*nodes(1, 3), *claims, *pods, config=NEVER)
    service.start()
    assert await offered(service, world, "g-0") == [["n1"]]
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    if cannot == "is deleted":
        pod = world.api.pod("g-1")
        world.api.put(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")), "user")
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("other", "c"))
    service = await succeeded(world, service)
    assert await offered(service, world, "other") == [[]]
    assert len(await schedule(service, world, ["g-2", "g-3"])) == 2


async def test_gangs_that_wait_for_workers_do_not_keep_others_from_their_plans(world: World) -> None:
    """Each of three half-bound gangs has selectors for which workers need 1.9 s, of 5."""
    slow = [f"a{number}" for number in range(3)]
    claims = [selecting(pod, f"{LOOPS} //{name}") for name in slow for pod in names(name, 2)]
    pods = [member(pod, pod, gang=name) for name in slow for pod in names(name, 2)]
    service = world.service(*nodes(1, 8), *claims, *pods, *gang("g", 2), config=NEVER)
    service.start()
    for name in (*slow, "g"):
        assert await offered(service, world, f"{name}-0") == [["n1"]]
        assert await service.bind(world.api.pod(f"{name}-0"), "n1") == ""
    await world.settle(1.0)
    service = await succeeded(world, service, lambda _: 1.9)
    await world.settle(RESTORE_SECONDS + 1.0)
    assert GroupKey("gang", "default", "g") in {*service.extender.gangs.plans._plans}


async def test_pods_of_other_schedulers_hold_nothing(world: World) -> None:
    pods = [member(name, name, size=4, schedulerName="other") for name in names("g", 4)]
    pods[0] = replace(pods[0], spec=replace(pods[0].spec, node_name="n1"))
    claims = [make_allocated("g-0", "g-0"), *map(make_claim, names("g", 4)[1:])]
    config = replace(NEVER, scheduler_names=frozenset({"ours"}))
    service = world.service(
        make_class(), make_node("n1", cpu="100"), make_slice("n1", "abcd"), *claims, *pods, config=config
    )
    service.start()
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("p", "c", schedulerName="ours"))
    assert await offered(service, world, "p") == [["n1"]]


async def test_a_gang_whose_launcher_without_devices_is_bound_is_planned(world: World) -> None:
    pods = [member("g-0", size=3), *(member(name, name, size=3) for name in ("g-1", "g-2"))]
    service = world.service(*nodes(1, 2), *map(make_claim, ("g-1", "g-2")), *pods, config=NEVER)
    service = await half_bound(world, service)
    assert await offered(service, world, "other") == [[]]
    assert len(await schedule(service, world, ["g-1", "g-2"])) == 2


async def test_an_error_about_one_gang_keeps_no_other_from_its_plan(
    world: World, monkeypatch: pytest.MonkeyPatch, tolerated: Reports
) -> None:
    service = world.service(*nodes(1, 4), *gang("g", 2), *gang("h", 2), config=NEVER)
    service.start()
    for name in "gh":
        assert await service.bind(world.api.pod(f"{name}-0"), (await offered(service, world, f"{name}-0"))[0][0]) == ""
    await world.settle(1.0)
    decide = Gangs.decide

    def failing(gangs: Gangs, view: View, of: Gang, *asked: Any, **more: Any) -> GangDecision:
        if of.key.name == "g":
            raise ValueError("g")
        return decide(gangs, view, of, *asked, **more)

    monkeypatch.setattr(Gangs, "decide", failing)
    service = await succeeded(world, service)
    await world.settle(1.0)
    assert [place for place, _ in tolerated] == ["chores"]
    assert [key.name for key in service.extender.gangs.plans._plans] == ["h"]


async def test_deleted_pods_that_stay_keep_no_leader_from_serving(world: World) -> None:
    """`run` ended with a KeyError for each leader."""
    pods = [make_pod("a", node="n1"), make_pod("b")]
    marks = {GANG: "g", GANG_SIZE: "2"}
    service = world.service(*nodes(1, 1), *(with_metadata(pod, annotations=marks) for pod in pods), config=NEVER)
    service.start()
    await world.settle(1.0)
    for pod in map(world.api.pod, "ab"):
        world.api.put(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")), "user")
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("other", "c"))
    service = await succeeded(world, service)
    assert await offered(service, world, "other", "b") == [["n1"], ["n1"]]


def test_looking_for_such_gangs_is_linear_in_the_pods_of_a_group() -> None:
    def cost(count: int) -> int:
        counted: list[int] = []

        async def story(world: World) -> None:
            service = world.service(*(member(f"g-{number}", size=2) for number in range(count)), config=NEVER)
            await world.settle(1.0)
            found = service.extender.gangs.begun(service.extender.view)

            def drive() -> None:
                with pytest.raises(StopIteration):
                    while True:
                        found.send(None)

            counted.append(calls(drive))

        replay(story)
        return counted[0]

    assert cost(2_000) < 3 * cost(1_000)


async def test_a_restored_plan_has_no_node_that_does_not_suit_the_pods(world: World) -> None:
    """kube-scheduler has not filtered the nodes."""
    tainted = make_node("n0", cpu="100")
    tainted = replace(tainted, spec=replace(tainted.spec, unschedulable=True))
    more: Objects = [tainted, make_slice("n0", ["gpu-0", "gpu-1"])]
    service = world.service(*nodes(2, 1), *more, *gang("g", 2), config=NEVER)
    service.start()
    assert (await service.filter(world.api.pod("g-0"), "n1", "n2")).NodeNames == ["n1"]
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    await world.settle(1.0)
    service = await succeeded(world, service)
    await world.settle(1.0)
    (plan,) = service.extender.gangs.plans._plans.values()
    assert [place.node for place in plan.places.values()] == ["n2"]


async def test_a_gang_with_extended_resources_is_planned(world: World) -> None:
    """Devices provide the resource, so the nodes do not have to have it."""
    containers = [{"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}]
    pods = [member(name, size=3, containers=containers) for name in names("g", 3)]
    listed = [make_class(resource="example.com/gpu"), *list(nodes(1, 3))[1:]]
    service = world.service(*listed, *pods, config=NEVER)
    service = await half_bound(world, service)
    assert await offered(service, world, "other") == [[]]
    assert len(await schedule(service, world, ["g-1", "g-2"])) == 2


async def test_nodes_that_do_not_suit_the_pods_do_not_make_the_plan_undecided(world: World) -> None:
    """12 pods, of which 9 have to run: as many nodes with free devices are cordoned as not."""
    listed = nodes(17, 1)
    cordoned = [replace(each, spec=replace(each.spec, unschedulable=True)) for each in listed[10:18]]
    pods = [each for name in names("g", 12) for each in (make_claim(name), member(name, name, size=9))]
    service = world.service(*listed[:10], *cordoned, *listed[18:], *pods, config=NEVER)
    service.start()
    suitable = [f"n{number}" for number in range(1, 10)]
    found = (await service.filter(world.api.pod("g-0"), *suitable)).NodeNames
    assert await service.bind(world.api.pod("g-0"), found[0]) == ""
    await world.settle(1.0)
    service = await succeeded(world, service)
    await world.settle(1.0)
    (plan,) = service.extender.gangs.plans._plans.values()
    assert {place.node for place in plan.places.values()} == {*suitable} - {found[0]}


async def test_gangs_whose_bound_pod_has_devices_come_first(world: World) -> None:
    """A tenant may create a pod with a node, and name a claim that does not exist."""
    fake = make_pod("a-0", "missing", node="n1", namespace="a")
    fakes = [
        with_metadata(each, annotations={GANG: "a", GANG_SIZE: "3"})
        for each in (fake, make_pod("a-1", "a-1", namespace="a"), make_pod("a-2", "a-2", namespace="a"))
    ]
    claims = [make_claim(name, namespace="a") for name in ("a-1", "a-2")]
    service = world.service(*nodes(1, 3), *gang("g", 3), config=NEVER)
    service.start()
    assert await offered(service, world, "g-0") == [["n1"]]
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    await world.settle(1.0)
    world.add(*claims, *fakes)
    service = await succeeded(world, service)
    await world.settle(1.0)
    begun = await service.extender.gangs.begun(service.extender.view)
    assert [each.metadata.namespace for each in begun] == ["default", "a"]
    assert len(await schedule(service, world, ["g-1", "g-2"])) == 2
    world.api.violations.clear()  # a pod without its claim is bound, by its user


async def test_a_gang_without_a_bound_pod_is_planned_when_it_is_asked_about(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), config=NEVER)
    service.start()
    assert await offered(service, world, "g-0") == [["n1"]]
    world.add(make_claim("c"), make_pod("other", "c"))
    service = await succeeded(world, service)
    assert await offered(service, world, "other") == [["n1"]]


async def test_a_restored_plan_ends_when_no_further_pod_is_bound(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), config=NEVER)
    service = await half_bound(world, service)
    assert await offered(service, world, "other") == [[]]
    await world.settle(GangPlans.SECONDS + 3.0)
    assert await offered(service, world, "other") == [["n1"]]
