"""Who comes next, and what keeps a pod from being nominated now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.earlynomination.queue import (
    LEAST,
    MOST,
    QUEUED_SECONDS,
    SCANNED,
    TRIED_SECONDS,
    UNKNOWN_RATE,
    EarlyNominationQueue,
)
from tests.support.examples import examples
from tests.support.scheduling.earlynomination import ALWAYS, waiting, with_devices
from tests.support.simulation.objects import make_pod
from tests.support.simulation.world import World, replay

LIMITS = replace(ALWAYS, nominate="never")
UNEVEN = {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}
ANYBODYS = replace(LIMITS, scheduler_names=frozenset[str]())


async def upcoming(world: World, *names: str, config: SchedulingConfig = LIMITS) -> EarlyNominationQueue:
    """With these pods, which have waited for long enough."""
    world.add(*with_devices(n1=2))
    service = world.service(config=config)
    service.start()
    made = EarlyNominationQueue(service.extender.view, service.extender.requeue)
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
    await asyncio.sleep(QUEUED_SECONDS)
    assert first(made) == ["b", "c", "a"]
    made.ended(world.api.pod("b").metadata.uid, "")
    assert first(made) == ["c", "a"]
    (_, high) = waiting("high", 1)
    assert isinstance(high, Pod)
    world.add(high)
    await world.settle(0.1)
    made.waits(high)
    await asyncio.sleep(QUEUED_SECONDS)
    assert first(made) == ["high", "c", "a"]


@pytest.mark.parametrize("spec", [{"schedulingGates": [{"name": "wait"}]}, {"resourceClaims": []}, UNEVEN])
async def test_pods_that_cannot_be_nominated_do_not_fill_the_front(world: World, spec: dict[str, Any]) -> None:
    made = await upcoming(world)
    for number in range(SCANNED + 1):
        made.waits(make_pod(f"e{number}", "c", **spec))
    world.add(*waiting("a"))
    await world.settle(QUEUED_SECONDS)
    made.waits(world.api.pod("a"))
    await asyncio.sleep(QUEUED_SECONDS)
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
    assert (first(made), made.is_next(tried.metadata.uid)) == (["b"], False)
    made.refused(tried.metadata.uid)
    await asyncio.sleep(QUEUED_SECONDS)
    assert first(made) == ["b", "a"]
    made.tried(tried)
    await asyncio.sleep(TRIED_SECONDS)
    assert first(made) == ["b", "a"]


@pytest.mark.parametrize(("pods", "offered"), [(60, 54), (130, LEAST)])
async def test_if_a_scheduler_takes_pods_in_an_unknown_order_all_are_offered_that_will_soon_be_bound(
    world: World, pods: int, offered: int
) -> None:
    """Four are bound each second, so as many as 120 within the 30 seconds of a nomination."""
    names = [f"e{number:03}" for number in range(pods)]
    made = await upcoming(world, *names)
    for name in names[-6:]:
        made.tried(world.api.pod(name))
        made.ended(world.api.pod(name).metadata.uid, "n1")
        await asyncio.sleep(0.25)
    assert len(first(made)) == offered
    for name in names[:30]:
        made.tried(world.api.pod(name))
        made.ended(world.api.pod(name).metadata.uid, "n1")
        await asyncio.sleep(0.25)
    assert len(first(made)) == 12, "the order is known"


async def test_a_pod_that_fits_nowhere_is_left_out_until_something_is_better(world: World) -> None:
    made = await upcoming(world, "a", "b")
    made.fits_nowhere(world.api.pod("a").metadata.uid, 0)
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
    uid = world.api.pod("a").metadata.uid
    for pause in (5, 10, 20, 40, 60, 60):
        made.failed(uid)
        await asyncio.sleep(pause - 0.1)
        assert not made.is_next(uid)
        await asyncio.sleep(0.2)
        assert made.is_next(uid)


async def test_a_pod_that_has_come_just_now_is_probably_tried_before(world: World) -> None:
    made = await upcoming(world)
    world.add(*waiting("a"))
    made.waits(world.api.pod("a"))
    await world.settle(QUEUED_SECONDS / 2)
    assert first(made) == []
    await world.settle(QUEUED_SECONDS)
    assert first(made) == ["a"]


async def test_a_pod_that_can_no_longer_be_nominated_leaves_the_queue(world: World) -> None:
    made = await upcoming(world, "a", "b")
    spec = replace(world.api.pod("a").spec, resource_claims=())
    made.waits(replace(world.api.pod("a"), spec=spec))
    assert first(made) == ["b"]


async def test_as_many_are_nominated_as_are_bound_in_three_seconds(world: World) -> None:
    made = await upcoming(world)
    names = [str(number) for number in range(MOST + 100)]
    world.add(*(each for name in names for each in waiting(name)))
    await world.settle(QUEUED_SECONDS)
    pods = [world.api.pod(name) for name in names]
    for pod in pods:
        made.waits(pod)
    await asyncio.sleep(QUEUED_SECONDS)

    async def bind(count: int, seconds: float) -> None:
        for number in range(count):
            pod = pods[number % len(pods)]
            made.ended(pod.metadata.uid, "n1")
            made.waits(pod)
            await asyncio.sleep(seconds)

    assert len(first(made)) == UNKNOWN_RATE
    await bind(300, 0.02)
    assert 145 <= len(first(made)) <= 153
    await bind(600, 0.002)
    assert len(first(made)) == MOST
    await asyncio.sleep(1.9)
    await bind(1, 1.9)
    assert len(first(made)) == LEAST
    await asyncio.sleep(1)
    assert len(first(made)) == UNKNOWN_RATE


MOVES = st.lists(st.tuples(st.sampled_from(["put", "again", "drop"]), st.sampled_from("abcdef"), st.integers(0, 2)))


@settings(max_examples=examples(40))
@given(MOVES)
def test_the_queue_is_what_sorting_would_give(moves: list[tuple[str, str, int]]) -> None:
    async def story(world: World) -> None:
        made = await upcoming(world)
        known = dict[str, tuple[int, int]]()
        for number, (move, name, priority) in enumerate(moves):
            (claim, pod) = waiting(name, priority)
            assert isinstance(pod, Pod)
            uid = pod.metadata.uid
            if move == "put":
                world.api.put(claim)
                world.api.put(pod)
                await world.settle(0.01)
                made.waits(replace(pod, metadata=replace(pod.metadata, creation_timestamp=None)))
                if uid not in known or known[uid][0] != -priority:
                    known[uid] = -priority, number
            elif move == "again":
                made.refused(uid)
                if uid in known:
                    known[uid] = known[uid][0], number
            else:
                made.ended(uid, "")
                known.pop(uid, None)
            await asyncio.sleep(0.01)
        await asyncio.sleep(QUEUED_SECONDS)
        assert [pod.metadata.uid for pod in made.first()] == sorted(known, key=known.__getitem__)

    replay(story)
