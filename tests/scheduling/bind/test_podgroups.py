"""Claims that are reserved for a PodGroup: a bind takes back what it wrote, unless another pod may rely on it."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.errors import RejectedError
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import OwnerReference
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.bind import failure
from tests.support.simulation.objects import (
    Objects,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World

GROUP: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}


def one_device() -> Objects:
    return [make_class(), make_node("n1"), make_slice("n1", ["a"])]


def group_claim(name: str) -> ResourceClaim:
    owner = OwnerReference("PodGroup", "g", "uid-g", "scheduling.k8s.io/v1alpha1", controller=True)
    return with_metadata(make_claim(name), owner_references=(owner,))


def replica(world: World, lag: float = 0.002) -> Service:
    world.api.groups["default/g"] = "uid-g"
    return world.service(lag=lag, features=FeatureGates(DRAWorkloadResourceClaims=True))


async def test_of_two_replicas_the_later_one_gives_the_device_back(world: World) -> None:
    world.add(*one_device(), group_claim("c"), make_claim("d"), make_pod("p", "c", **GROUP), make_pod("q", "d"))
    first, second = replica(world), replica(world, lag=1.0)
    assert await first.bind(world.api.pod("q"), "n1") == ""
    assert await second.bind(world.api.pod("p"), "n1") == failure.RIVAL
    assert world.api.claim("c").allocation is None
    assert world.api.claim("c").status.reserved_for == ()
    assert world.api.doubles() == []


@pytest.mark.parametrize("mark", ["stays", "is taken away by a user"])
async def test_what_another_pod_of_the_group_is_bound_with_stays(world: World, mark: str) -> None:
    world.add(*one_device(), group_claim("c"), make_pod("p", "c", **GROUP), make_pod("q", "c", **GROUP))
    one, other = replica(world), replica(world)
    one.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    one.client.before["bind_pod"] = lambda: one.pause(5.0)
    late = one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert await other.bind(world.api.pod("q"), "n1") == ""
    if mark != "stays":
        world.api.put(with_metadata(world.api.claim("c"), annotations={}))
    assert await late == failure.REFUSED_BINDING
    assert world.api.claim("c").allocation is not None
    assert world.api.claim("c").reserved_for("uid-g")


async def test_a_pod_whose_device_turns_out_to_be_allocated_twice_leaves_the_claim_to_the_others(world: World) -> None:
    """A replica that has just started does not know that the claim of the group had the device first."""
    world.add(*one_device(), group_claim("c"), make_pod("p", "c", **GROUP), make_pod("q", "c", **GROUP))
    assert await replica(world).bind(world.api.pod("q"), "n1") == ""
    service = replica(world)
    service.start()
    await world.settle(1.0)
    service.client.fail("read_pod", RejectedError(403, "Forbidden"), times=20)
    world.api.hooks["annotate"] = lambda: world.add(make_allocated("d", "stranger"))
    assert failure.RIVAL in await service.bind(world.api.pod("p"), "n1")
    assert service.extender.problems
    await world.settle(2000.0)
    assert not service.extender.problems
    assert world.api.claim("c").reserved_for("uid-g")
