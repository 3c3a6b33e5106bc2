"""Refused pods are woken by every improvement, and only by improvements."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.errors import OutcomeUnknownError, RejectedError
from dra_extender.api.resource import ResourceClaimConsumerReference
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import REQUEUES
from dra_extender.scheduling.requeue import REMEMBERED
from tests.support.simulation.objects import Objects, make_claim, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World


async def refused(world: World, small: Objects) -> Service:
    """A service with one pod that wants three devices of a node with two."""
    service = world.service(*small, make_claim("c", count=3), make_pod("p", "c"))
    service.start()
    await world.settle(5.0)
    answer = await service.filter(world.api.pod("p"))
    assert answer.NodeNames == []
    await world.settle(5.0)
    service.client.requeues = 0
    return service


async def test_the_bell_rings_once_at_the_start(world: World, small: Objects) -> None:
    service = world.service(*small)
    service.start()
    await world.settle(100.0)
    assert service.client.requeues == 1


async def test_a_new_slice_rings(world: World, small: Objects) -> None:
    service = await refused(world, small)
    world.add(make_node("n3"), make_slice("n3", ["a", "b", "c"]))
    await world.settle(2.0)
    assert service.client.requeues >= 1
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n3"]


async def test_nothing_rings_without_an_improvement(world: World, small: Objects) -> None:
    service = await refused(world, small)
    for _ in range(10):
        world.api.put(world.api.pod("p"))
        world.api.touch("c")
        await world.settle(1.0)
    assert service.client.requeues == 0


async def test_nothing_rings_when_nobody_waits(world: World, small: Objects) -> None:
    service = await refused(world, small)
    world.api.delete_pod("p")
    await world.settle(2.0)
    service.client.requeues = 0
    world.add(make_node("n3"), make_slice("n3", ["a"]))
    await world.settle(5.0)
    assert service.client.requeues == 0


async def test_many_improvements_ring_once_a_second(world: World, small: Objects) -> None:
    service = await refused(world, small)
    for index in range(100):
        world.add(make_node(f"m{index}"), make_slice(f"m{index}", ["a"]))
        await world.settle(0.1)
    await world.settle(3.0)
    assert 8 <= service.client.requeues <= 13


async def test_a_bell_that_fails_rings_again(world: World, small: Objects) -> None:
    service = await refused(world, small)
    service.client.fail("requeue", OutcomeUnknownError(0, "Timeout"), times=3)
    world.add(make_node("n3"), make_slice("n3", ["a", "b", "c"]))
    await world.settle(20.0)
    assert service.client.requeues >= 1
    assert service.counted(REQUEUES, "failed") == 3


async def test_an_improvement_seen_late_still_rings(world: World, small: Objects) -> None:
    service = await refused(world, small)
    service.watch.lag = 2.0
    world.add(make_node("n3"), make_slice("n3", ["a", "b", "c"]))
    assert (await service.filter(world.api.pod("p"), "n3")).NodeNames == []
    await world.settle(4.0)
    assert service.client.requeues >= 1
    assert (await service.filter(world.api.pod("p"), "n3")).NodeNames == ["n3"]


async def test_devices_that_a_failed_bind_gives_back_ring(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c", count=2), make_claim("d", count=2), make_pod("p", "c"), make_pod("q", "d"))
    service = world.service()
    service.start()
    await world.settle(5.0)
    service.client.requeues = 0
    service.client.latency = 0.2
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    service.client.fail("write_status", OutcomeUnknownError(0, "Timeout"), times=1000)
    await world.settle(0.1)
    assert (await service.filter(world.api.pod("q"), "n1")).NodeNames == []
    assert await bind != ""
    service.client.faults.clear()
    await world.settle(60.0)
    assert service.client.requeues >= 1
    assert (await service.filter(world.api.pod("q"), "n1")).NodeNames == ["n1"]


async def test_a_new_claim_wakes_only_those_who_miss_it(world: World, small: Objects) -> None:
    service = await refused(world, small)
    world.add(make_claim("unrelated"))
    await world.settle(3.0)
    assert service.client.requeues == 0
    assert (await service.filter(make_pod("q", "missing"))).NodeNames == []
    world.add(make_claim("missing"))
    await world.settle(3.0)
    assert service.client.requeues == 1


@pytest.mark.parametrize("changed", [False, True], ids=["at once", "after a change of the old one"])
async def test_a_claim_made_anew_wakes_the_pod_that_was_refused_for_the_old_one(
    world: World, small: Objects, changed: bool
) -> None:
    service = await refused(world, small)
    old = make_claim("again")
    meta = msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z", uid="uid-old")
    world.add(msgspec.structs.replace(old, metadata=meta))
    await world.settle(3.0)
    answer = await service.filter(make_pod("q", "again"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {'resourceclaim "again" is being deleted'}
    service.client.requeues = 0
    if changed:
        world.api.touch("again")
    world.api.drop(world.api.claim("again"))
    world.add(old)
    await world.settle(3.0)
    assert service.client.requeues == 1
    assert (await service.filter(make_pod("q", "again"))).NodeNames == ["n1", "n2"]


async def test_a_missed_claim_that_another_pods_filter_reads_wakes_all_who_miss_it(
    world: World, small: Objects
) -> None:
    service = await refused(world, small)
    assert (await service.filter(make_pod("q", "late"))).NodeNames == []
    service.watch.lag = 30.0
    world.add(make_claim("late"))
    await world.settle(10.0)
    assert service.client.requeues == 0
    assert (await service.filter(make_pod("r", "late"))).NodeNames == ["n1", "n2"]
    await world.settle(3.0)
    assert service.client.requeues == 1


async def test_room_in_a_full_claim_made_by_a_failed_bind_of_ours_rings(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), *(make_pod(name, "c") for name in ("first", "p", "q")))
    service.start()
    assert await service.bind(world.api.pod("first"), "n1") == ""
    strangers = [
        ResourceClaimConsumerReference(resource="pods", name=f"s{number}", uid=f"uid-s{number}")
        for number in range(254)
    ]
    world.api.set_status("c", reserved_for=(*world.api.claim("c").status.reserved_for, *strangers))
    await world.settle(5.0)
    service.client.requeues = 0
    service.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    service.client.latency = 0.1
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    while len(world.api.claim("c").status.reserved_for) < 256:
        await world.settle(0.01)
    await world.settle(0.2)
    assert (await service.filter(world.api.pod("q"))).NodeNames == []
    service.watch.lag = 1.0
    assert await bind != ""
    assert len(world.api.claim("c").status.reserved_for) == 255
    await world.settle(5.0)
    assert service.client.requeues >= 1
    assert (await service.filter(world.api.pod("q"))).NodeNames == ["n1"]


async def test_a_pod_is_requeued_however_many_pods_of_another_namespace_are_refused_after_it(
    world: World, small: Objects
) -> None:
    service = world.service(*small, make_claim("c", count=3), config=SchedulingConfig(remembered_pods=10))
    service.start()
    await world.settle(5.0)
    flood = [make_pod(f"p{number}", "c") for number in range(20)]
    for pod in (make_pod("waiting", "c"), *flood):
        assert not (await service.filter(pod)).NodeNames
    for pod in flood:
        service.extender.requeue.forget(pod.metadata.uid)
    await world.settle(5.0)
    requeues = service.client.requeues
    for node in ("n3", "n4"):
        world.add(make_node(node), make_slice(node, ["a"]))
        await world.settle(5.0)
    assert service.client.requeues == requeues + 1


async def test_a_pod_waits_for_its_claim_however_many_claims_others_miss(world: World, small: Objects) -> None:
    service = await refused(world, small)
    assert (await service.filter(make_pod("mine", "mine"))).NodeNames == []
    flood = [f"tenant/{number}" for number in range(2 * REMEMBERED)]
    service.extender.requeue.refused("uid-other", service.extender.requeue.revision, flood)
    assert (await service.filter(make_pod("late", "late"))).NodeNames == []
    service.client.requeues = 0
    world.add(make_claim("late"))
    await world.settle(2.0)
    assert service.client.requeues == 1


@pytest.mark.parametrize(
    ("ended", "requeues"),
    [("uid-bound", 1), ("uid-of-nobody", 0), ("mine/c", 1), ("other/c", 0), ("tenant/any", 1), ("gang tenant/any", 0)],
)
async def test_of_too_much_that_pods_of_a_namespace_wait_for_any_end_there_rings(
    world: World, small: Objects, ended: str, requeues: int
) -> None:
    service = await refused(world, small)
    requeue = service.extender.requeue
    requeue.refused("uid-other", requeue.revision, (f"tenant/{number}" for number in range(20 * REMEMBERED)))
    requeue.refused("uid-mine", requeue.revision, ("uid-bound", "mine/c"))
    service.client.requeues = 0
    requeue.ended(ended)
    await world.settle(2.0)
    assert service.client.requeues == requeues
