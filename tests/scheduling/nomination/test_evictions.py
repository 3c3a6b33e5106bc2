"""The cluster may change between choice and eviction: no pod is evicted that no longer has to be."""

from __future__ import annotations

import pytest

from dra_extender.api.errors import (
    ApiError,
    DisruptionBudgetError,
    OutcomeUnknownError,
    RejectedError,
    UnreachableError,
)
from dra_extender.api.extender import ExtenderPreemptionArgs, MetaPod, MetaVictims
from dra_extender.scheduling.nomination.nominations import is_preempting
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED
from tests.support.scheduling.nominating import FOUR, ON, alive, full, tried, until_bound, wanting
from tests.support.simulation.api import deleted
from tests.support.simulation.objects import Objects, make_pod
from tests.support.simulation.strategy import with_metadata, with_pod_status
from tests.support.simulation.world import World


async def test_nobody_goes_for_a_pod_that_is_deleted_while_its_nomination_is_stored(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    service.client.latency = 0.5
    deleted = "2026-01-01T00:00:00Z"
    world.api.hooks["patch_pod_status"] = lambda: world.api.put(
        with_metadata(world.api.pod("p"), deletion_timestamp=deleted)
    )
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(10.0)
    assert (world.api.evicted, len(service.extender.nominations)) == ([], 0)
    assert service.counted(NOMINATIONS_ENDED, "gone") == 1


async def test_nobody_goes_when_a_device_becomes_free_while_the_nomination_is_stored(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    service.client.latency = 0.5
    world.api.hooks["try_evict_pod"] = lambda: world.api.delete_pod("d")
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(10.0)
    assert (world.api.evicted, service.counted(NOMINATIONS_ENDED, "fits")) == ([], 1)
    assert await until_bound(world, service, "p") == "n2"


async def test_when_the_first_victim_must_stay_after_all_so_does_the_second_one(world: World, small: Objects) -> None:
    """The nomination is another replica's, which died before the first eviction."""
    first = await full(world, small, {"a": 1, "b": 2, "c": 50, "d": 50})
    first.client.kill_on = "evict_pod", "before"
    world.add(*wanting("p", 10, count=2))
    assert not await tried(world, first, "p")
    await world.settle(3.0)
    await first.kill()
    world.api.protected |= {"b"}
    second = world.service(config=ON)
    second.start()
    await world.settle(4.0)
    assert world.api.evicted == []


async def test_nobody_else_goes_when_a_pod_of_higher_priority_has_taken_the_place(world: World, small: Objects) -> None:
    service = await full(world, small, {"a": 1, "b": 2, "c": 50, "d": 50})
    world.add(*wanting("p", 10, count=2))
    service.client.fail("evict_pod", UnreachableError(0, "Unreachable"), skip=1, times=2)
    assert not await tried(world, service, "p")
    await world.settle(2.0)
    assert world.api.evicted == ["b"]
    world.add(*wanting("boss", 20))
    assert await tried(world, service, "boss") == "n1"
    await world.settle(60.0)
    assert world.api.evicted == ["b"]
    assert service.counted(NOMINATIONS_ENDED, "lost") == 1
    assert not is_preempting(world.api.pod("p"))


async def test_a_preemptor_whose_place_is_taken_does_not_wait_for_pods_without_devices(
    world: World, small: Objects
) -> None:
    """kube-scheduler would not preempt again while a pod of lower priority terminates on the nominated node."""
    service = await full(world, small, {"a": 1, "b": 50, "c": 50, "d": 50})
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    world.add(with_metadata(make_pod("other", nodeName="n1"), **deleted(world.clock.wall(), 60)), *wanting("boss", 20))
    assert await tried(world, service, "boss") == "n1"
    await world.settle(10.0)
    assert service.counted(NOMINATIONS_ENDED, "lost") == 1
    assert not is_preempting(world.api.pod("p"))


async def test_a_pod_that_could_not_be_evicted_is_not_stuck(world: World, small: Objects) -> None:
    service = await full(world, small, {"a": 1, "b": 2, "c": 50, "d": 50})
    world.add(*wanting("p", 10, count=2))
    service.client.fail("evict_pod", UnreachableError(0, "Unreachable"), skip=1, times=20)
    assert not await tried(world, service, "p")
    await world.settle(80.0)
    assert (service.extender.preemption.stuck, service.counted(NOMINATIONS_ENDED, "expired")) == (0, 1)
    service.client.faults.clear()
    assert await until_bound(world, service, "p", 120.0) == "n1"
    assert world.api.evicted == ["b", "a"]


async def test_what_is_kept_stays_kept_while_a_victim_goes_of_whom_the_watch_knows_nothing_yet(
    world: World, small: Objects
) -> None:
    service = await full(world, small, {"a": 1, "b": 2, "c": 50, "d": 50})
    world.api.stopping["b"] = 20.0
    service.client.fail("evict_pod", RejectedError(500, "InternalError"), skip=1)
    world.add(*wanting("p", 10, count=2), *wanting("low", 0))
    assert not await tried(world, service, "p")
    world.api.hooks["evict_pod"] = service.watch.pause
    await world.settle(2.0)
    service.watch.resume()
    await world.settle(1.0)
    assert service.counted(NOMINATIONS_ENDED, "forbidden") == 0
    assert not await tried(world, service, "low")
    assert await until_bound(world, service, "p") == "n1"


async def test_a_pod_for_which_kube_scheduler_makes_room_itself_is_left_to_it(world: World, small: Objects) -> None:
    """It lacks CPU on n1, where kube-scheduler evicts for it, and nothing but devices on n2."""
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10))
    assert not (await service.filter(world.api.pod("p"), "n2")).NodeNames
    proposed = {"n1": MetaVictims(Pods=[MetaPod(UID="uid-a")])}
    args = ExtenderPreemptionArgs(Pod=world.api.pod("p"), NodeNameToMetaVictims=proposed)
    assert (await service.extender.preempt(args)).NodeNameToMetaVictims == proposed
    await world.settle(1.0)
    world.api.stopping["a"] = 20.0
    world.api.evict(world.api.pod("a"))
    world.api.put(with_pod_status(world.api.pod("p"), {"nominatedNodeName": "n1"}))
    await world.settle(15.0)
    assert not (await service.filter(world.api.pod("p"), "n2")).NodeNames
    assert world.api.evicted == ["a"]
    assert await until_bound(world, service, "p") == "n1"


async def test_whoever_the_api_server_does_not_let_us_evict_is_replaced_by_somebody_else(
    world: World, small: Objects
) -> None:
    """An admission webhook, for example: the same victim would be refused again and again."""
    service = await full(world, small, FOUR)
    service.client.fail("try_evict_pod", RejectedError(403, "Forbidden"), times=2)
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["b"]


async def test_a_victim_that_is_too_large_for_the_condition_is_evicted_without_it(world: World, small: Objects) -> None:
    """Its owner can make a pod so large. It must not keep its devices from pods of higher priority."""
    service = await full(world, small, FOUR)
    world.api.too_large |= {"a"}
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["a"]


async def test_nobody_goes_again_and_again_beside_a_victim_that_stays(world: World, small: Objects) -> None:
    """A victim that was not evicted before is the first one the next time."""
    service = await full(world, small, {"a": 1, "b": 2, "c": 50, "d": 50})
    world.api.kept |= {"a"}
    world.add(*wanting("p", 10, count=2))
    for second in range(400):
        await tried(world, service, "p")
        await world.settle(1.0)
        if second % 20 == 19 and not any(name.startswith("b") for name in alive(world)):
            world.add(*wanting(f"b{second}", 2))
        for name in alive(world):
            if name.startswith("b") and not world.api.pod(name).spec.node_name:
                await tried(world, service, name)
    assert world.api.evicted == ["b"]


@pytest.mark.parametrize(
    "error",
    [DisruptionBudgetError(429, "TooManyRequests"), OutcomeUnknownError(500, "InternalError")],
    ids=["a budget that changes", "a webhook that does not answer"],
)
async def test_another_victim_goes_where_the_api_server_would_not_evict_the_first(
    world: World, small: Objects, error: ApiError
) -> None:
    service = await full(world, small, FOUR)
    service.client.fail("try_evict_pod", error, times=2)
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["b"]
