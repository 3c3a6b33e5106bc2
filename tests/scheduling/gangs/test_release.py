"""A claim that waiting members share is released where the gang does not fit, unless they may still need it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import OwnerReference
from dra_extender.api.scheduling import PodGroup
from tests.support.scheduling.gangs import member, nodes, offered
from tests.support.scheduling.leftovers import OURS, allocated, report
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World

GROUP: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}
WORKLOAD = FeatureGates(DRAWorkloadResourceClaims=True)


def pod_group() -> PodGroup:
    meta = {"name": "g", "namespace": "default", "uid": "uid-g"}
    return convert(PodGroup, {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})


async def refused_for(world: World, service: Service, seconds: int, *pods: str, on: Sequence[str]) -> int:
    """Attempts of a scheduler until it has a node for each pod, or the time is over. Returns the seconds."""
    for second in range(0, seconds, 10):
        found = [(await service.filter(world.api.pod(pod), *on)).NodeNames for pod in pods]
        if all(found):
            return second
        for pod in pods:
            report(world, pod)
        await world.settle(10.0)
    return seconds


def users(*names: str) -> Objects:
    """Pods of the PodGroup: each uses the claim of the group, and a device of its own."""
    claims = [make_claim(f"of-{name}", pod=name) for name in names]
    return [*claims, *(make_pod(name, "c", f"of-{name}", **GROUP) for name in names)]


async def running(world: World) -> Service:
    """Two nodes with three devices each, and the PodGroup g, whose pods p and q run on n1 with the claim c."""
    owner = OwnerReference("PodGroup", "g", "uid-g", "scheduling.k8s.io/v1alpha1", controller=True)
    claim = with_metadata(make_claim("c"), owner_references=(owner,))
    world.add(*nodes(2, 3), pod_group(), claim, *users("p", "q"))
    service = world.service(config=OURS, features=WORKLOAD)
    service.start()
    await world.settle(1.0)
    assert [(await service.filter(world.api.pod(pod), "n1")).NodeNames for pod in ("p", "q")] == [["n1"], ["n1"]]
    for pod in ("p", "q"):
        assert await service.bind(world.api.pod(pod), "n1") == ""
    await world.settle(1.0)
    return service


async def test_a_gang_whose_node_is_drained_gets_its_claim_on_another_one(world: World) -> None:
    service = await running(world)
    for pod in ("p", "q"):
        world.api.delete_pod(pod)
    world.add(*users("p2", "q2"))
    assert await refused_for(world, service, 600, "p2", "q2", on=("n2",)) < 200


async def test_a_gang_that_no_longer_fits_beside_its_claim_gets_the_claim_on_another_node(world: World) -> None:
    service = await running(world)
    for pod in ("p", "q"):
        world.api.delete_pod(pod)
    for other in ("x", "y"):
        world.add(make_claim(other), make_pod(other, other))
        await world.settle(0.1)
        assert await service.bind(world.api.pod(other), "n1") == ""
    world.add(*users("p2", "q2"))
    assert await refused_for(world, service, 600, "p2", "q2", on=("n1", "n2")) < 200


@pytest.mark.parametrize("make", [make_pod, member], ids=["pods", "gang"])
async def test_what_a_crash_left_reserved_for_two_pods_is_released_for_a_gang_as_for_single_pods(
    world: World, small: Objects, make: Any
) -> None:
    service = await allocated(world, small, "g-0", "g-1", config=OURS)
    world.api.drop(world.api.pod("p"))
    world.add(make("g-0", "c"), make("g-1", "c"))
    assert await refused_for(world, service, 600, "g-0", "g-1", on=("n2",)) < 200


async def test_a_gang_of_which_a_member_runs_keeps_its_claim(world: World) -> None:
    service = await running(world)
    world.api.delete_pod("q")
    world.add(*users("q2"))
    assert await refused_for(world, service, 600, "q2", on=("n2",)) == 600
    assert world.api.claim("c").allocation is not None


async def test_a_gang_that_waits_for_a_member_keeps_its_claim(world: World, small: Objects) -> None:
    service = await allocated(world, small, "g-0", "g-1", config=OURS)
    world.api.drop(world.api.pod("p"))
    world.add(member("g-0", "c"))
    assert await refused_for(world, service, 600, "g-0", on=("n1", "n2")) == 600
    assert world.api.claim("c").allocation is not None


async def test_a_claim_stays_where_a_gang_has_its_plan_when_another_pod_cannot_use_it_there(
    world: World, small: Objects
) -> None:
    service = await allocated(world, small, "g-0", "g-1", "s", config=OURS)
    world.add(member("g-0", "c"), member("g-1", "c"), make_pod("s", "c"))
    for pod in ("g-0", "g-1"):
        report(world, pod)
    assert await refused_for(world, service, 80, "s", on=("n2",)) == 80
    assert await offered(service, world, "g-0", "g-1") == [["n1"], ["n1"]]
    await world.settle(25.0)
    assert world.api.claim("c").allocation is not None
