"""Who comes next, and what keeps a pod from being nominated now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.earlynomination.queue import (
    QUEUED_SECONDS,
    SCANNED,
    TRIED_SECONDS,
    UNKNOWN_RATE,
    EarlyNominationQueue,
)
from tests.support.scheduling.earlynomination import ALWAYS, waiting, with_devices
from tests.support.simulation.objects import make_pod
from tests.support.simulation.world import World

LIMITS = msgspec.structs.replace(ALWAYS, nominate="never")
UNEVEN = {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}
ANYBODYS = msgspec.structs.replace(LIMITS, scheduler_names=frozenset[str]())


async def upcoming(
    world: World, *names: str, config: SchedulingConfig = LIMITS, makes_room: Callable[[str], bool] = lambda uid: False
) -> EarlyNominationQueue:
    """With these pods, which have waited for long enough."""
    world.add(*with_devices(n1=2))
    service = world.service(config=config)
    service.start()
    made = EarlyNominationQueue(service.extender.view, service.extender.requeue, makes_room)
    for name in names:
        world.add(*waiting(name))
        await world.settle(QUEUED_SECONDS)
        made.waits(world.api.pod(name))
    await world.settle(QUEUED_SECONDS)
    return made


def first(made: EarlyNominationQueue) -> list[str]:
    return [pod.metadata.name for pod in made.first()]


async def test_pods_come_in_the_order_in_which_they_wait(world: World) -> None:
    made = await upcoming(world, "a", "b", "c")
    assert first(made) == ["a", "b", "c"]
    made.refused(world.api.pod("a").metadata.uid)
    assert first(made) == ["b", "c", "a"]
    made.ended(world.api.pod("b").metadata.uid, "n1")
    assert first(made) == ["c", "a"]


@pytest.mark.parametrize("spec", [{"schedulingGates": [{"name": "wait"}]}, {"resourceClaims": []}, UNEVEN])
async def test_pods_that_cannot_be_nominated_do_not_fill_the_front(world: World, spec: dict[str, Any]) -> None:
    made = await upcoming(world)
    for number in range(SCANNED + 1):
        made.waits(make_pod(f"e{number}", "c", **spec))
    world.add(*waiting("a"))
    await world.settle(QUEUED_SECONDS)
    made.waits(world.api.pod("a"))
    assert first(made) == ["a"]


async def test_pods_that_were_nominated_in_vain_do_not_fill_the_front(world: World) -> None:
    names = [f"e{number}" for number in range(UNKNOWN_RATE)]
    made = await upcoming(world, *names, "a")
    for name in names:
        made.failed(world.api.pod(name).metadata.uid)
    assert first(made) == ["a"]


async def test_a_pod_that_a_scheduler_tries_is_left_out_until_it_is_refused_or_forgotten(world: World) -> None:
    made = await upcoming(world, "a", "b")
    tried = world.api.pod("a")
    made.tried(tried)
    assert (first(made), made.may_be_nominated(tried), made.is_tried(tried.metadata.uid)) == (["b"], False, True)
    made.refused(tried.metadata.uid)
    assert (first(made), made.is_tried(tried.metadata.uid)) == (["b", "a"], False)
    made.tried(tried)
    await asyncio.sleep(TRIED_SECONDS)
    assert first(made) == ["b", "a"]


async def test_a_pod_that_fits_nowhere_is_left_out_until_something_is_better(world: World) -> None:
    made = await upcoming(world, "a", "b")
    made.fits_nowhere(world.api.pod("a"), 0)
    assert first(made) == ["b"]
    await asyncio.sleep(60)
    assert first(made) == ["a", "b"]


async def test_without_names_of_schedulers_those_that_ask_are_ours(world: World) -> None:
    made = await upcoming(world, "a", "b", config=ANYBODYS)
    assert first(made) == []
    made.tried(world.api.pod("a"))
    assert first(made) == ["b"]


async def test_a_pod_that_was_nominated_in_vain_waits_longer_each_time(world: World) -> None:
    made = await upcoming(world, "a")
    pod = world.api.pod("a")
    for pause in (5, 10, 20, 40, 60, 60):
        made.failed(pod.metadata.uid)
        await asyncio.sleep(pause - 0.1)
        assert not made.may_be_nominated(pod)
        await asyncio.sleep(0.2)
        assert made.may_be_nominated(pod)


async def test_a_pod_of_which_there_is_a_newer_version_waits_for_that(world: World) -> None:
    made = await upcoming(world, "a")
    pod = world.api.pod("a")
    made.outdated(pod)
    assert not made.may_be_nominated(pod)
    world.api.put(pod)
    await world.settle(QUEUED_SECONDS)
    assert made.may_be_nominated(world.api.pod("a"))


async def test_a_pod_that_has_come_just_now_is_probably_tried_before(world: World) -> None:
    made = await upcoming(world)
    world.add(*waiting("a"))
    made.waits(world.api.pod("a"))
    await world.settle(QUEUED_SECONDS / 2)
    assert not made.may_be_nominated(world.api.pod("a"))
    await world.settle(QUEUED_SECONDS)
    assert made.may_be_nominated(world.api.pod("a"))


@pytest.mark.parametrize("why", ["room is made for it", "it uses no devices", "it does not wait"])
async def test_what_else_keeps_a_pod_from_being_nominated(world: World, why: str) -> None:
    made = await upcoming(world, "a", makes_room=lambda uid: why == "room is made for it")
    pod = world.api.pod("a")
    if why == "it uses no devices":
        pod = make_pod("b")
        made.waits(pod)
        await asyncio.sleep(2 * QUEUED_SECONDS)
    elif why == "it does not wait":
        made.ended(pod.metadata.uid, "")
    assert not made.may_be_nominated(pod)
