"""Two active replicas, and strangers: never one device in the claims of two bound pods."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from app.scheduling.failure import DEPOSED
from tests.scheduling.api import devices
from tests.scheduling.objects import make_claim, make_pod
from tests.scheduling.world import Replay, World


@pytest.mark.parametrize("seed", range(20))
def test_two_active_replicas_never_double_a_device(replay: Replay, small: list[Any], seed: int) -> None:
    async def story(world: World) -> None:
        dice = random.Random(seed)
        names = [f"{index}" for index in range(8)]
        world.add(*small, *(make_claim(f"c{n}") for n in names), *(make_pod(f"p{n}", f"c{n}") for n in names))
        replicas = [world.service(lag=dice.choice([0.0, 0.001, 0.01, 0.2])) for _ in range(2)]
        for _ in range(60):
            pending = [n for n in names if not world.api.pod(f"p{n}").spec.node_name]
            calls = [
                dice.choice(replicas).bind(world.api.pod(f"p{n}"), dice.choice(["n1", "n2"]))
                for n in dice.sample(pending, min(3, len(pending)))
            ]
            await asyncio.gather(*calls)
            await world.settle(dice.random())
        bound = [n for n in names if world.api.pod(f"p{n}").spec.node_name]
        assert len(bound) == 4
        assert world.api.doubles() == []

    replay(story, seed)


@pytest.mark.parametrize("seed", range(10))
def test_replicas_share_claims_without_losing_a_reservation(replay: Replay, small: list[Any], seed: int) -> None:
    async def story(world: World) -> None:
        names = [f"p{index}" for index in range(6)]
        world.add(*small, make_claim("c"), *(make_pod(name, "c") for name in names))
        replicas = [world.service(lag=0.01), world.service(lag=0.05)]
        for _ in range(10):
            calls = []
            for index, name in enumerate(names):
                pod = world.api.pod(name)
                if not pod.spec.node_name:
                    nodes = (await replicas[index % 2].filter(pod)).NodeNames
                    if nodes:
                        calls.append(replicas[index % 2].bind(pod, nodes[0]))
            await asyncio.gather(*calls)
            await world.settle(1.0)
        assert {world.api.pod(name).spec.node_name for name in names} in ({"n1"}, {"n2"})
        assert len(world.api.claim("c").status.reserved_for) == 6

    replay(story, seed)


def test_a_late_write_of_a_deposed_replica_fails(replay: Replay, small: list[Any]) -> None:
    async def story(world: World) -> None:
        world.add(*small, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
        old, new = world.service(), world.service()
        old.client.latency = 2.0
        late = old.spawn(old.bind(world.api.pod("p"), "n1"))
        await world.settle(2.5)
        assert await new.bind(world.api.pod("q"), "n1") == ""
        assert await late != ""
        assert world.api.claim("c").allocation is None
        assert len(devices(world.api.claim("d"))) == 1

    replay(story)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_replica_that_is_deposed_during_a_bind_writes_no_further(
    replay: Replay, small: list[Any], writes: int
) -> None:
    async def story(world: World) -> None:
        world.add(*small, make_claim("c"), make_pod("p", "c"))
        service = world.service()
        forward = len(world.api.log) + writes
        service.scheduling.state.leading = lambda: len(world.api.log) < forward
        assert await service.bind(world.api.pod("p"), "n1") == DEPOSED
        assert not world.api.pod("p").spec.node_name
        assert world.api.claim("c").allocation is None

    replay(story)
