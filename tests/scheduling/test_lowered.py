"""A driver lowers a counter or a capacity below what is in use: more pods may join a claim that a pod runs with."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceSlice
from tests.support.scheduling.leftovers import OURS
from tests.support.simulation.objects import (
    DRIVER,
    Objects,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import Service, World


def partitions(value: str) -> Objects:
    """Two devices that take 2 of `value` units each."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    takes = [{"counterSet": "card", "counters": {"units": {"value": "2"}}}]
    parts: list[dict[str, Any]] = [
        {"sharedCounters": [{"name": "card", "counters": {"units": {"value": value}}}]},
        {"devices": [{"name": name, "consumesCounters": takes} for name in ("one", "two")]},
    ]
    return [
        convert(
            ResourceSlice,
            {
                "metadata": {"name": f"s{number}", "uid": f"s{number}"},
                "spec": {"driver": DRIVER, "nodeName": "n1", "pool": pool, **part},
            },
        )
        for number, part in enumerate(parts)
    ]


def shared(value: str) -> Objects:
    """A device of `value`, of which each share takes 2."""
    capacity = {"memory": {"value": value, "requestPolicy": {"default": "2"}}}
    return [make_slice("n1", [{"name": "a", "allowMultipleAllocations": True, "capacity": capacity}])]


LIMITS = pytest.mark.parametrize("published", [partitions, shared], ids=["a counter", "a capacity"])


async def lowered(world: World, published: Any) -> Service:
    """Claims x and y use all; pod p1 runs with x, the bind of p2 with y did not end; the driver publishes less."""
    world.add(make_class(), make_node("n1"), *published("4"))
    world.add(make_claim("x"), make_claim("y"), make_pod("p1", "x"), make_pod("p2", "y"))
    service = world.service(config=OURS, features=FeatureGates(DRAConsumableCapacity=True))
    service.start()
    assert not await service.bind(world.api.pod("p1"), "n1")
    service.client.kill_on = ("write_status", "after")
    service.spawn(service.bind(world.api.pod("p2"), "n1"))
    await world.settle(1.0)
    service = world.service(config=OURS, features=FeatureGates(DRAConsumableCapacity=True))
    service.start()
    world.add(*published("3"), make_pod("of-x", "x"), make_pod("of-y", "y"))
    await world.settle(1.0)
    return service


@LIMITS
async def test_a_pod_joins_a_claim_that_another_pod_runs_with(world: World, published: Any) -> None:
    service = await lowered(world, published)
    assert (await service.filter(world.api.pod("of-x"))).NodeNames == ["n1"]
    assert not await service.bind(world.api.pod("of-x"), "n1")


@LIMITS
async def test_a_claim_that_no_pod_runs_with_gives_way(world: World, published: Any) -> None:
    service = await lowered(world, published)
    assert not (await service.filter(world.api.pod("of-y"))).NodeNames
    assert await service.bind(world.api.pod("of-y"), "n1")


async def test_no_pod_joins_a_claim_with_the_device_of_another_though_a_pod_runs_with_it(world: World) -> None:
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a"]), make_allocated("x", "runs"))
    world.add(make_pod("runs", "x", node="n1"), make_allocated("d", "stranger"), make_pod("q", "x"))
    service = world.service(config=OURS)
    service.start()
    await world.settle(1.0)
    assert not (await service.filter(world.api.pod("q"))).NodeNames
    assert await service.bind(world.api.pod("q"), "n1")
