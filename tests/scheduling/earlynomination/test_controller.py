"""Pods are nominated ahead of the queue: who, for which node, and until when."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from dra_extender.api.core import Node, Pod
from dra_extender.api.errors import ConflictError
from dra_extender.api.resource import ResourceClaim
from dra_extender.limits import PLANNED_OF_POOL
from dra_extender.placement.policies import PlacementStrategy, PolicyName
from tests.support.scheduling.earlynomination import (
    ALWAYS,
    ROOM,
    KubeScheduler,
    ended,
    nominated,
    planning,
    waiting,
    with_devices,
)
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice, make_wishes
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World


async def test_pods_that_wait_are_nominated_for_nodes_with_room_for_all_of_them(world: World) -> None:
    planning(world, n1=2, n2=1)
    for name in "abc":
        world.add(*waiting(name))
    await world.settle(1.0)
    assert sorted(nominated(world).values()) == ["n1", "n1", "n2"]


async def test_a_nominated_pod_is_bound_on_its_node_with_one_look_at_one_node(world: World) -> None:
    service = planning(world, n1=2, n2=2)
    for name in "abcd":
        world.add(*waiting(name))
    await world.settle(1.0)
    expected = nominated(world)
    scheduler = KubeScheduler(world, service)
    assert sorted(await scheduler.drain()) == ["a", "b", "c", "d"]
    assert {pod.metadata.name: pod.spec.node_name for pod in world.api.all(Pod)} == expected
    assert scheduler.calls == [(name, 1) for name in "abcd"]
    await world.settle(1.0)
    assert ended(service) == {"made": 4, "bound": 4}


async def test_nothing_is_nominated_where_the_setting_says_never(world: World) -> None:
    service = planning(world, msgspec.structs.replace(ALWAYS, nominate="never"), n1=2)
    world.add(*waiting("a"))
    await world.settle(2.0)
    assert nominated(world) == {}
    assert "nominate_pod" not in service.client.calls


async def test_auto_begins_with_as_many_nodes_as_it_says_and_ends_below(world: World) -> None:
    planning(world, msgspec.structs.replace(ALWAYS, nominate="auto", nominate_from_nodes=3), n1=2, n2=2)
    world.add(*waiting("a"))
    await world.settle(2.0)
    assert nominated(world) == {}
    world.add(make_node("n3"))
    await world.settle(2.0)
    assert set(nominated(world)) == {"a"}
    world.api.drop(world.api.objects[Node, "n3"])
    world.add(*waiting("b"))
    await world.settle(2.0)
    assert set(nominated(world)) == {"a"}


async def test_those_of_higher_priority_get_the_devices_although_they_came_later(world: World) -> None:
    service = planning(world, n1=1)
    world.add(*waiting("low", 1))
    await world.settle(1.0)
    assert nominated(world) == {"low": "n1"}
    world.add(*waiting("high", 2))
    await world.settle(2.0)
    assert nominated(world) == {"high": "n1"}
    assert ended(service) == {"made": 2, "missed": 1}


async def test_a_pod_that_fits_nowhere_is_not_nominated(world: World) -> None:
    service = planning(world, n1=2, n2=2)
    world.add(*waiting("devices", count=3), *waiting("cpu", cpu="9"))
    await world.settle(5.0)
    assert nominated(world) == {}
    assert "nominate_pod" not in service.client.calls


async def test_cpu_of_nodes_is_counted_with_that_of_pods_that_are_nominated_there(world: World) -> None:
    planning(world, n1=4, n2=4)
    for name in "abc":
        world.add(*waiting(name, cpu="5"))
    await world.settle(1.0)
    assert sorted(nominated(world).values()) == ["n1", "n2"]


async def test_what_a_nomination_takes_of_its_node_ends_with_the_leadership(world: World) -> None:
    """While the service did not lead, another pod got the device, so the pod is not nominated again."""
    world.add(*with_devices(n1=1))
    service = world.service(config=ALWAYS)
    leading = asyncio.create_task(service.extender.run())
    world.add(*waiting("a", cpu="5"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n1"}
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    world.add(*waiting("b"))
    assert await service.bind(world.api.pod("b"), "n1") == ""
    leading = asyncio.create_task(service.extender.run())
    await world.settle(10.0)
    assert (nominated(world), service.extender._usage.used("n1")[0].get("cpu", 0)) == ({}, 0)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def test_a_nomination_is_withdrawn_when_the_devices_are_taken_by_somebody_else(world: World) -> None:
    service = planning(world, n1=1)
    world.add(*waiting("a"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n1"}
    world.add(*waiting("b"))
    assert await service.bind(world.api.pod("b"), "n1") == ""
    await world.settle(3.0)
    assert nominated(world) == {}
    assert ended(service) == {"made": 1, "missed": 1}


@pytest.mark.parametrize("change", ["cordoned", "gone", "full"])
async def test_a_nomination_is_withdrawn_when_the_node_will_not_do_any_more(world: World, change: str) -> None:
    planning(world, n1=1)
    world.add(*waiting("a", cpu="5"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n1"}
    node: Node = world.api.objects[Node, "n1"]
    if change == "gone":
        world.api.drop(node)
    elif change == "cordoned":
        world.api.put(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True)))
    else:
        (_, pod) = waiting("b", cpu="5")
        assert isinstance(pod, Pod)
        spec = msgspec.structs.replace(pod.spec, node_name="n1", resource_claims=())
        world.add(msgspec.structs.replace(pod, spec=spec))
    await world.settle(3.0)
    assert nominated(world) == {}


async def test_a_pod_that_is_not_bound_in_time_loses_its_nomination_until_a_scheduler_asks(world: World) -> None:
    service = planning(world, n1=2)
    world.add(*waiting("a"))
    await world.settle(ALWAYS.nominated_seconds + 4.0)
    assert nominated(world) == {}
    assert ended(service) == {"made": 1, "missed": 1}
    await world.settle(60.0)
    assert nominated(world) == {}
    world.add(*waiting("b"), *waiting("c"))
    assert await KubeScheduler(world, service).attempt("b") == "n1"
    await world.settle(1.0)
    assert set(nominated(world)) == {"a"}


async def test_a_pod_that_something_else_keeps_from_the_node_falls_back_in_the_same_cycle(world: World) -> None:
    service = planning(world, n1=1, n2=1)
    world.add(*waiting("a"))
    await world.settle(1.0)
    (node,) = nominated(world).values()
    other = {"n1": "n2", "n2": "n1"}[node]
    scheduler = KubeScheduler(world, service)
    scheduler.keeps_away["a"] = {node}
    assert await scheduler.attempt("a") == other
    await world.settle(5.0)
    assert nominated(world) == {}
    assert "withdraw_pod" not in [operation for operation, _ in world.api.log]


async def test_a_pod_that_kube_scheduler_refuses_again_and_again_is_nominated_ever_less_often(world: World) -> None:
    service = planning(world, n1=1, n2=1)
    world.add(*waiting("a"))
    scheduler = KubeScheduler(world, service)
    scheduler.keeps_away["a"] = {"n1", "n2"}
    for _ in range(100):
        await world.settle(2.0)
        await scheduler.attempt("a")
    assert nominated(world) == {}
    assert ended(service) == {"made": 6, "missed": 6}


async def test_a_pod_that_somebody_changes_at_the_same_time_is_nominated_later(world: World) -> None:
    service = planning(world, n1=1)
    service.client.fail("nominate_pod", ConflictError(409, "Conflict"))
    world.add(*waiting("a"))
    await world.settle(1.0)
    assert nominated(world) == {}
    world.api.put(world.api.pod("a"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n1"}


async def test_a_pod_that_is_too_large_to_be_nominated_delays_no_other(world: World) -> None:
    service = planning(world, n1=2)
    world.api.too_large |= {"a"}
    world.add(*waiting("a"))
    await world.settle(1.0)
    assert (nominated(world), ended(service)) == ({}, {"failed": 1})
    world.add(*waiting("b"))
    await world.settle(1.0)
    assert nominated(world) == {"b": "n1"}


async def test_a_claim_that_two_pods_share_is_planned_once(world: World) -> None:
    planning(world, n1=2, n2=2)
    claim, pod = waiting("a")
    assert isinstance(claim, ResourceClaim) and isinstance(pod, Pod)
    meta = msgspec.structs.replace(claim.metadata, owner_references=())
    other = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name="b", uid="uid-b"))
    world.add(msgspec.structs.replace(claim, metadata=meta), pod, other)
    await world.settle(1.0)
    assert len(nominated(world)) == 1


@pytest.mark.parametrize(("policy", "nodes"), [("pack", {"n2": 2}), ("spread", {"n1": 1, "n3": 1})])
async def test_the_placement_policy_chooses_the_node(world: World, policy: PolicyName, nodes: dict[str, int]) -> None:
    world.add(*with_devices(n1=4, n2=4, n3=4))
    service = world.service(config=ALWAYS, strategy=PlacementStrategy(policy))
    service.start()
    world.add(*waiting("before"))
    assert await service.bind(world.api.pod("before"), "n2") == ""
    world.add(*waiting("a"), *waiting("b"))
    await world.settle(1.0)
    assert Counter(nominated(world).values()) == nodes


async def test_a_node_with_a_better_alternative_comes_first(world: World) -> None:
    planning(world, n1=1, n2=2, n3=1)
    world.add(make_wishes("wishes", 2, 1), make_pod("a", "wishes"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n2"}


async def test_equal_nodes_take_turns_and_better_ones_come_first(world: World) -> None:
    planning(world, n1=1, n2=4, n3=4, n4=1)
    for number in range(6):
        world.add(make_wishes(f"wishes-{number}", 2, 1), make_pod(f"p{number}", f"wishes-{number}"))
    await world.settle(1.0)
    found = nominated(world)
    assert [found[f"p{number}"] for number in range(6)] == ["n2", "n3", "n2", "n3", "n1", "n4"]


async def test_nodes_are_looked_for_again_when_none_are_left(world: World) -> None:
    planning(world, n1=1)
    world.add(*waiting("a"), *waiting("b"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n1"}
    world.add(*with_devices(n2=1)[1:])
    await world.settle(2.0)
    assert nominated(world) == {"a": "n1", "b": "n2"}


async def test_pods_of_other_schedulers_are_left_alone(world: World) -> None:
    planning(world, n1=4)
    world.add(*waiting("a", schedulerName="default-scheduler"), *waiting("b"))
    await world.settle(2.0)
    assert set(nominated(world)) == {"b"}


async def test_without_names_those_schedulers_count_that_have_asked(world: World) -> None:
    service = planning(world, msgspec.structs.replace(ALWAYS, scheduler_names=frozenset()), n1=4)
    world.add(*waiting("a"), *waiting("b"), *waiting("c", schedulerName="other"))
    await world.settle(2.0)
    assert nominated(world) == {}
    assert await KubeScheduler(world, service).attempt("a") == "n1"
    await world.settle(2.0)
    assert set(nominated(world)) == {"b"}


async def test_nodes_where_others_are_expected_are_not_offered_while_100_equal_ones_are_left(world: World) -> None:
    service = planning(world, **{f"n{number}": 1 for number in range(103)})
    for name in "abc":
        world.add(*waiting(name))
    await world.settle(1.0)
    expected = set(nominated(world).values())
    world.add(*waiting("other"))
    offered = (await service.filter(world.api.pod("other"))).NodeNames
    assert len(expected) == 3
    assert len(offered) == 100
    assert expected.isdisjoint(offered)


async def test_a_plan_refuses_nobody(world: World) -> None:
    service = planning(world, n1=1)
    world.add(*waiting("a"))
    await world.settle(1.0)
    assert nominated(world) == {"a": "n1"}
    world.add(*waiting("b"))
    assert (await service.filter(world.api.pod("b"))).NodeNames == ["n1"]
    assert await service.bind(world.api.pod("b"), "n1") == ""


async def test_a_pod_for_which_the_work_of_a_call_does_not_suffice_is_not_nominated(world: World) -> None:
    config = msgspec.structs.replace(ALWAYS, turn_work=100, call_work=100)
    world.add(*with_devices(**{f"n{number}": 1 for number in range(60)}), *waiting("a", cpu="9"))
    service = world.service(config=config, workers=VirtualWorkers())
    service.start()
    await world.settle(5.0)
    assert nominated(world) == {}


async def test_so_many_devices_of_a_pool_are_planned_and_no_more(world: World) -> None:
    """128 pods with 32 requests each for one network device took all the time of the event loop."""
    room = PLANNED_OF_POOL // 32
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": f"r{number}", "exactly": exactly} for number in range(32)]
    shared = {"name": "nic", "allowMultipleAllocations": True}
    world.add(make_class(), make_node("n1", **ROOM), make_slice("", [shared], pool="net"))
    for number in range(room + 2):
        pod = make_pod(f"p{number}", f"c{number}", containers=[{"name": "main"}])
        world.add(make_claim(f"c{number}", requests=requests, pod=f"p{number}"), pod)
    service = world.service(config=ALWAYS)
    service.start()
    await world.settle(3.0)
    assert sorted(nominated(world)) == [f"p{number}" for number in range(room)]
    assert await service.bind(world.api.pod("p0"), "n1") == ""
    await world.settle(3.5)
    assert sorted(nominated(world)) == [f"p{number}" for number in range(1, room + 1)]
