"""A process that is killed at any await of bind: the next one finishes the work."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.scheduling.api import devices
from tests.scheduling.client import When
from tests.scheduling.objects import make_claim, make_pod
from tests.scheduling.world import Replay, World

# Calls of a bind with one fresh claim, by number, and the two moments around each commit.
POINTS: list[tuple[int, When]] = [(number, when) for number in range(3) for when in get_args(When)[:2]]


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize(("number", "when"), POINTS)
def test_a_restart_finishes_what_a_crash_left(
    replay: Replay, small: list[Any], number: int, when: When, node: str
) -> None:
    async def story(world: World) -> None:
        world.add(*small, make_claim("c"), make_pod("p", "c"))
        first = world.service()
        first.client.kill_at = (number, when)
        first.spawn(first.bind(world.api.pod("p"), "n1"))
        await world.settle(0.1)
        await first.kill()
        second = world.service()
        second.start()
        pod = world.api.pod("p")
        if not pod.spec.node_name:
            answer = await second.filter(pod)
            allocated = world.api.claim("c").allocation is not None
            assert answer.NodeNames == (["n1"] if allocated else ["n1", "n2"])
            chosen = node if node in answer.NodeNames else answer.NodeNames[0]
            assert await second.bind(pod, chosen) == ""
        pod = world.api.pod("p")
        assert {pool for _, pool, _ in devices(world.api.claim("c"))} == {pod.spec.node_name}
        assert world.api.claim("c").reserved_for("uid-p")
        assert second.scheduling.state.cluster.ledger.holds() == ()

    replay(story)


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_devices_of_a_pod_that_never_comes_back_are_freed(
    replay: Replay, small: list[Any], number: int, when: When
) -> None:
    async def story(world: World) -> None:
        world.add(*small, make_claim("c"), make_pod("p", "c"))
        first = world.service()
        first.client.kill_at = (number, when)
        first.spawn(first.bind(world.api.pod("p"), "n1"))
        await world.settle(0.1)
        await first.kill()
        second = world.service()
        second.start()
        await world.settle(1000.0)
        if not world.api.pod("p").spec.node_name:
            assert world.api.claim("c").allocation is None

    replay(story)


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_among_many_binds_doubles_and_loses_nothing(replay: Replay, small: list[Any], seed: int) -> None:
    async def story(world: World) -> None:
        names = [f"{index}" for index in range(4)]
        world.add(*small, *(make_claim(f"c{n}") for n in names), *(make_pod(f"p{n}", f"c{n}") for n in names))
        first = world.service()
        first.client.kill_at = (seed, "after")
        for index, n in enumerate(names):
            first.spawn(first.bind(world.api.pod(f"p{n}"), "n1" if index < 2 else "n2"))
        await world.settle(0.1)
        await first.kill()
        second = world.service()
        second.start()
        for _ in range(20):
            for n in names:
                pod = world.api.pod(f"p{n}")
                if not pod.spec.node_name:
                    nodes = (await second.filter(pod)).NodeNames
                    if nodes:
                        await second.bind(pod, nodes[-1])
            await world.settle(1.0)
        assert all(world.api.pod(f"p{n}").spec.node_name for n in names)
        assert world.api.doubles() == []

    replay(story, seed)
