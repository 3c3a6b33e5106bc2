"""A gang whose size changes while its plan is held: the size at bind counts."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.api.scheduling import PodGroup
from tests.support.scheduling.gangs import member, names, nodes, offered
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World

CHANGES = ["annotations", "minCount", "another PodGroup", "no PodGroup"]


def group(size: int, uid: str = "group") -> PodGroup:
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
    return convert(PodGroup, {"metadata": {"name": "g", "namespace": "default", "uid": uid}, "spec": policy})


async def offered_as_two(world: World, change: str) -> Service:
    """Four pods of a gang of two, room for two, and nodes for the first two pods."""
    annotated = change == "annotations"
    in_group: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}
    pods = [member(name, name) if annotated else make_pod(name, name, **in_group) for name in names("g", 4)]
    service = world.service(*nodes(2, 1), *map(make_claim, names("g", 4)), group(2), *pods)
    service.start()
    await world.settle()
    assert await offered(service, world, "g-0", "g-1") == [["n1"], ["n2"]]
    return service


def need_four(world: World, change: str) -> None:
    if change == "annotations":
        pods = [world.api.pod(name) for name in names("g", 4)]
        world.add(*(with_metadata(pod, annotations={GANG: "g", GANG_SIZE: "4"}) for pod in pods))
    elif change == "minCount":
        world.add(group(4))
    else:
        world.api.drop(group(2))
        world.add(*([group(4, "newer")] if change == "another PodGroup" else []))


@pytest.mark.parametrize("asked_again", [False, True])
@pytest.mark.parametrize("change", CHANGES)
async def test_no_pod_is_bound_by_a_plan_for_fewer_pods_than_the_gang_needs(
    world: World, change: str, asked_again: bool
) -> None:
    service = await offered_as_two(world, change)
    need_four(world, change)
    await world.settle(1.0)
    if asked_again:
        assert await offered(service, world, "g-0") == [[]]
    for name, node in (("g-0", "n1"), ("g-1", "n2")):
        assert await service.bind(world.api.pod(name), node) != ""
    assert not any(pod.spec.node_name for pod in world.api.all(Pod))


@pytest.mark.parametrize("change", CHANGES[:2])
async def test_a_plan_grows_with_the_size_where_there_is_room(world: World, change: str) -> None:
    service = await offered_as_two(world, change)
    need_four(world, change)
    world.add(*nodes(4, 1)[3:5], *nodes(4, 1)[7:])
    await world.settle(1.0)
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    assert await offered(service, world, "g-2", "g-3") == [["n3"], ["n4"]]
