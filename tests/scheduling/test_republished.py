"""What devices take of their node counts while their driver publishes the next generation of its slices."""

from __future__ import annotations

from typing import Any

from dra_extender.api.resource import ResourceSlice
from tests.support.simulation.nodeamounts import FEATURES, costs, maps, user
from tests.support.simulation.objects import Objects, make_allocated, make_claim, make_class, make_node, make_slice
from tests.support.simulation.world import World

Json = dict[str, Any]
CPU = "Insufficient cpu"


def node(*devices: Json) -> Objects:
    """A node of four CPUs with these devices."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return [make_class(), make_node("n1", **amounts), make_slice("n1", list(devices))]


def republished(*devices: Json) -> ResourceSlice:
    """One of two slices of the next generation of n1."""
    return make_slice("n1", list(devices), generation=2, count=2, part="-new")


async def test_while_the_driver_republishes_a_device_the_status_of_a_bound_pod_says_what_it_takes(world: World) -> None:
    pods = [user("p", "c", cpu="1"), user("q", "c", cpu="500m")]
    service = world.service(*node(costs(perPod="2")), make_claim("c"), *pods, features=FEATURES)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.add(republished(costs("b", perPod="2")))
    await world.settle(1.0)
    assert (await service.filter(world.api.pod("q"), "n1")).FailedAndUnresolvableNodes == {"n1": CPU}


async def test_a_mapped_claim_is_for_one_pod_while_the_driver_republishes_its_device(world: World) -> None:
    service = world.service(*node(maps("1")), make_claim("c"), user("p", "c"), user("q", "c"), features=FEATURES)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.add(republished(maps("1", "b")))
    await world.settle(1.0)
    (why,) = (await service.filter(world.api.pod("q"), "n1")).FailedAndUnresolvableNodes.values()
    assert "cannot be shared" in why


async def test_a_claim_that_no_bound_pod_uses_waits_until_its_device_is_published_again(world: World) -> None:
    objects = [*node(), make_allocated("c", "q"), user("q", "c", cpu="500m")]
    service = world.service(*objects, republished(costs("b", perPod="4")), features=FEATURES)
    text = "resourceclaim not available on the node"
    assert (await service.filter(world.api.pod("q"), "n1")).FailedAndUnresolvableNodes == {"n1": text}
    world.add(make_slice("n1", [costs(perPod="4")], generation=2, count=2))
    await world.settle(1.0)
    assert (await service.filter(world.api.pod("q"), "n1")).FailedAndUnresolvableNodes == {"n1": CPU}
    world.add(make_slice("n1", [costs(perPod="1")], generation=3))
    await world.settle(1.0)
    assert (await service.filter(world.api.pod("q"), "n1")).NodeNames == ["n1"]
