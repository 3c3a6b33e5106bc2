"""Nominations on pods that a replica does not expect, or has to remove."""

from __future__ import annotations

import asyncio

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.errors import OutcomeUnknownError, UnreachableError
from tests.support.scheduling.earlynomination import (
    ALWAYS,
    KubeScheduler,
    ended,
    nominated,
    planning,
    waiting,
    with_devices,
)
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World


async def test_what_others_have_nominated_stays(world: World) -> None:
    service = planning(world, n1=1, n2=1)
    claim, pod = waiting("a")
    assert isinstance(pod, Pod)
    world.add(claim, msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name="n9")))
    await world.settle(20.0)
    assert nominated(world) == {"a": "n9"}
    assert "nominate_pod" not in service.client.calls


async def test_a_deleted_pod_that_a_finalizer_keeps_loses_its_nomination(world: World) -> None:
    """kube-scheduler counts the resources of a nominated pod until the pod is gone, however long that takes."""
    service = planning(world, n1=1)
    world.add(*waiting("a"))
    await world.settle(1.0)
    deleted = {"finalizers": ("example.com/mine",), "deletion_timestamp": "2026-01-01T00:00:00Z"}
    world.api.put(with_metadata(world.api.pod("a"), **deleted))
    world.add(*waiting("b"))
    await world.settle(3.0)
    assert nominated(world) == {"b": "n1"}
    assert ended(service) == {"made": 2, "missed": 1}


async def test_a_new_leader_removes_the_nomination_of_a_deleted_pod(world: World) -> None:
    world.add(*with_devices(n1=1))
    first = world.service(config=ALWAYS)
    first.start()
    world.add(*waiting("a"))
    await world.settle(1.0)
    await first.kill()
    world.api.put(with_metadata(world.api.pod("a"), deletion_timestamp="2026-01-01T00:00:00Z"))
    second = world.service(config=ALWAYS)
    second.start()
    await world.settle(5.0)
    assert nominated(world) == {}


async def test_a_new_leader_nominates_anew_the_pods_that_still_fit(world: World) -> None:
    world.add(*with_devices(n1=1, n2=1))
    first = world.service(config=ALWAYS)
    first.start()
    world.add(*waiting("a"), *waiting("b"))
    await world.settle(1.0)
    left = nominated(world)
    assert len(left) == 2
    await first.kill()
    gone = world.api.pod("b").status.nominated_node_name
    world.api.drop(world.api.objects[Node, gone])
    second = world.service(config=ALWAYS)
    second.start()
    await world.settle(3.0)
    assert nominated(world) == {"a": left["a"]}
    assert ended(second) == {"made": 1}
    scheduler = KubeScheduler(world, second)
    assert await scheduler.attempt("a") == left["a"]
    assert scheduler.calls == [("a", 1)]


async def test_with_the_setting_turned_off_what_is_left_is_withdrawn(world: World) -> None:
    world.add(*with_devices(n1=1))
    first = world.service(config=ALWAYS)
    first.start()
    world.add(*waiting("a"))
    await world.settle(1.0)
    await first.kill()
    second = world.service(config=msgspec.structs.replace(ALWAYS, nominate="never"))
    second.start()
    await world.settle(3.0)
    assert nominated(world) == {}


async def test_a_nomination_whose_fate_is_not_known_is_taken_back(world: World) -> None:
    service = planning(world, n1=1)
    service.client.fail("nominate_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=3.0)
    world.add(*waiting("a"))
    await world.settle(4.5)
    assert ended(service)["failed"] == 1
    assert [operation for operation, _ in world.api.log if "withdraw" in operation] == ["withdraw_pod"]


async def test_a_nomination_that_shows_up_when_nobody_expects_it_any_more_is_looked_after(world: World) -> None:
    service = planning(world, n1=1)
    late = 2 * ALWAYS.doubt_seconds
    service.client.fail("nominate_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=late)
    world.add(*waiting("a"))
    await world.settle(1.0)
    world.api.drop(world.api.objects[Node, "n1"])
    await world.settle(late - 2.0)
    assert [operation for operation, _ in world.api.log if "nominate" in operation] == []
    await world.settle(10.0)
    assert [operation for operation, _ in world.api.log if "nominate" in operation] != []
    assert nominated(world) == {}


async def test_a_nomination_that_shows_up_late_is_removed_before_there_is_one_for_another_node(world: World) -> None:
    service = planning(world, n1=1)
    world.add(*waiting("a"))
    await world.settle(0.05)
    service.watch.disconnect([Pod])
    await world.settle(2.0)
    world.add(*with_devices(n2=1)[1:])
    world.api.drop(world.api.objects[Node, "n1"])
    await world.settle(5.0)
    assert ended(service) == {"made": 1}
    service.watch.reconnect()
    await world.settle(10.0)
    assert nominated(world) == {"a": "n2"}


async def test_whose_a_nomination_is_is_asked_until_somebody_answers(world: World) -> None:
    world.add(*with_devices(n1=1))
    first = world.service(config=ALWAYS)
    first.start()
    world.add(*waiting("a"))
    await world.settle(1.0)
    await first.kill()
    world.api.drop(world.api.objects[Node, "n1"])
    second = world.service(config=ALWAYS)
    for _ in range(3):
        second.client.fail("nominated_ahead", UnreachableError(0, "Unreachable"))
    second.start()
    await world.settle(0.5)
    assert nominated(world) == {"a": "n1"}
    await world.settle(60.0)
    assert nominated(world) == {}


async def test_a_withdrawal_that_fails_is_tried_again(world: World) -> None:
    service = planning(world, n1=1)
    world.add(*waiting("a"))
    await world.settle(1.0)
    service.client.fail("nominate_pod", UnreachableError(0, "Unreachable"))
    world.api.drop(world.api.objects[Node, "n1"])
    await world.settle(15.0)
    assert nominated(world) == {}


async def test_a_nomination_that_the_watch_shows_after_a_new_leader_has_looked_is_removed(world: World) -> None:
    world.add(*with_devices(n1=1))
    first, second = world.service(config=ALWAYS), world.service(config=ALWAYS, lag=0.5)
    first.start()
    await world.settle(1.0)
    world.add(*waiting("a"))
    while not nominated(world):
        await asyncio.sleep(0.001)
    await first.stop()
    world.services.remove(first)
    second.start()
    world.add(*waiting("b"))
    await world.settle(1.0)
    assert await second.bind(world.api.pod("b"), "n1") == ""
    await world.settle(5.0)
    assert nominated(world) == {}


async def test_what_another_component_nominates_is_asked_about_once(world: World) -> None:
    service = planning(world, n1=1)
    world.add(*waiting("a", schedulerName="other"))
    await world.settle(1.0)
    pod = world.api.pod("a")
    status = msgspec.structs.replace(pod.status, nominated_node_name="n1")
    world.api.put(msgspec.structs.replace(pod, status=status))
    await world.settle(10.0)
    assert nominated(world) == {"a": "n1"}
    assert service.client.calls.count("nominated_ahead") == 1
