"""A new leader goes on with the gangs that the previous one has begun to bind."""

from __future__ import annotations

import pytest

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.gangs.plans import GangPlans
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.scheduling.gangs import gang, member, names, nodes, offered, schedule
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World

NEVER = SchedulingConfig(nominate="never")


async def succeeded(world: World, service: Service) -> Service:
    """The next leader, after the first one was killed."""
    await service.kill()
    found = world.service(config=NEVER, workers=VirtualWorkers())
    found.start()
    return found


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


async def test_a_gang_without_a_bound_pod_is_planned_when_it_is_asked_about(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), config=NEVER)
    service.start()
    assert await offered(service, world, "g-0") == [["n1"]]
    world.add(make_claim("c"), make_pod("other", "c"))
    service = await succeeded(world, service)
    assert await offered(service, world, "other") == [["n1"]]


async def test_a_restored_plan_ends_when_no_further_pod_is_bound(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), config=NEVER)
    service.start()
    assert await offered(service, world, "g-0") == [["n1"]]
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    await world.settle(1.0)
    world.add(make_claim("c"), make_pod("other", "c"))
    service = await succeeded(world, service)
    assert await offered(service, world, "other") == [[]]
    await world.settle(GangPlans.BOUND_SECONDS + 2.0)
    assert await offered(service, world, "other") == [["n1"]]
