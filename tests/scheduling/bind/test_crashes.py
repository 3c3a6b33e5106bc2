"""A process that is killed at any await of bind: the next one finishes the work."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import pytest

from tests.support.simulation.api import devices
from tests.support.simulation.client import When
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World

# The nine points of a bind with one fresh claim, and what is stored then: finalizer, allocation, binding. A call is
Point: TypeAlias = tuple[int, When] | Literal["verifying", "answered"] | None
# (number, when): sent and not carried out, or carried out and the reply not read.
NINE = [
    pytest.param(None, (False, False, False), id="before the decision"),
    pytest.param((0, "before"), (False, False, False), id="before the finalizer"),
    pytest.param((0, "after"), (True, False, False), id="after the finalizer"),
    pytest.param((1, "before"), (True, False, False), id="before the status"),
    pytest.param((1, "after"), (True, True, False), id="after the status"),
    pytest.param("verifying", (True, True, False), id="before the own write is seen"),
    pytest.param((2, "before"), (True, True, False), id="before the binding"),
    pytest.param((2, "after"), (True, True, True), id="after the binding"),
    pytest.param("answered", (True, True, True), id="after the answer"),
]


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize(("point", "stored"), NINE)
async def test_a_crash_at_each_of_the_nine_points_of_a_bind(
    world: World, pending: Objects, point: Point, stored: tuple[bool, bool, bool], node: str
) -> None:
    """What is stored, and that a restart binds the pod with its devices; n2 is what the scheduler would like then."""
    world.add(*pending)
    first = world.service()
    if point is not None:
        first.client.kill_at = point if isinstance(point, tuple) else None
        if point == "verifying":
            first.watch.disconnect()
        first.spawn(first.bind(world.api.pod("p"), "n1"))
        await world.settle(0.1)
    await first.kill()
    claim, pod = world.api.claim("c"), world.api.pod("p")
    assert (bool(claim.metadata.finalizers), claim.allocation is not None, bool(pod.spec.node_name)) == stored
    second = world.service()
    second.start()
    if not pod.spec.node_name:
        nodes = (await second.filter(pod)).NodeNames
        assert nodes == (["n1"] if stored[1] else ["n1", "n2"])
        assert await second.bind(pod, node if node in nodes else nodes[0]) == ""
    claim, pod = world.api.claim("c"), world.api.pod("p")
    assert {pool for _, pool, _ in devices(claim)} == {pod.spec.node_name}
    assert claim.reserved_for("uid-p")
    assert second.extender.view.ledger.holds() == ()


# Calls of a bind with one fresh claim, by number, and the two moments around each commit.
POINTS: list[tuple[int, When]] = [(number, when) for number in range(3) for when in get_args(When)[:2]]


@pytest.mark.parametrize(("number", "when"), POINTS)
async def test_devices_of_a_pod_that_never_comes_back_are_freed(
    world: World, pending: Objects, number: int, when: When
) -> None:
    world.add(*pending)
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


@pytest.mark.parametrize("seed", range(10))
async def test_a_crash_among_many_binds_doubles_and_loses_nothing(world: World, small: Objects, seed: int) -> None:
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
