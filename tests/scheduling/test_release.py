"""Allocations that nobody uses are cleared, all others never."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.core import Pod
from app.api.decoding import convert
from app.api.errors import ConflictError, OutcomeUnknownError
from app.api.resource import ResourceClaim, ResourceClaimConsumerReference
from app.scheduling.bind import failure
from app.scheduling.limits import Limits
from app.scheduling.outcomes import CLEAR_ERRORS
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World

OURS = Limits(scheduler_names=frozenset({"dra-scheduler"}))
NO_SWEEP = Limits(sweep_seconds=0.0)


def report(world: World, name: str, **status: Any) -> None:
    """Give the pod this status, by default that of an attempt without a node."""
    pod = world.api.pod(name)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    found = convert(type(pod), {"metadata": {}, "status": {"conditions": [condition]} | status}).status
    world.api.put(type(pod)(metadata=pod.metadata, spec=pod.spec, status=found))


def consumer(name: str) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")


async def allocated(world: World, small: Objects, *consumers: str, limits: Limits = NO_SWEEP) -> Service:
    """The claim c is allocated on n1 and reserved for these pods; the pod p wants it."""
    world.add(*small, make_claim("c"), make_pod("first", "c"), make_pod("p", "c"))
    maker = world.service()
    assert await maker.bind(world.api.pod("first"), "n1") == ""
    world.api.set_status("c", reserved_for=tuple(consumer(name) for name in consumers))
    world.api.drop(world.api.pod("first"))
    await maker.kill()
    service = world.service(limits=limits)
    service.start()
    return service


# --- in the way of a pod ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("consumers", "seconds"), [((), 5.0), (("p",), 90.0)])
async def test_an_allocation_in_the_way_of_its_only_pod_is_cleared(
    world: World, small: Objects, consumers: tuple[str, ...], seconds: float
) -> None:
    """A reservation of the pod may belong to a bind in another replica until that must have ended."""
    service = await allocated(world, small, *consumers)
    assert (await service.filter(world.api.pod("p"), "n2")).NodeNames == []
    report(world, "p")
    if consumers:
        await world.settle(seconds - 15.0)
        assert world.api.claim("c").allocation is not None
    await world.settle(seconds)
    assert world.api.claim("c").allocation is None
    assert (await service.filter(world.api.pod("p"), "n2")).NodeNames == ["n2"]
    assert service.client.rings >= 2


async def test_an_allocation_that_others_use_stays(world: World, small: Objects) -> None:
    service = await allocated(world, small, "other")
    await service.filter(world.api.pod("p"), "n2")
    report(world, "p")
    await world.settle(200.0)
    assert world.api.claim("c").allocation is not None


async def test_a_pod_the_scheduler_has_not_given_up_keeps_its_allocation(world: World, small: Objects) -> None:
    service = await allocated(world, small)
    await service.filter(world.api.pod("p"), "n2")
    await world.settle(200.0)
    assert world.api.claim("c").allocation is not None


async def test_a_probe_of_a_nominated_node_clears_nothing(world: World, small: Objects) -> None:
    service = await allocated(world, small)
    report(world, "p", nominatedNodeName="n2")
    await service.filter(world.api.pod("p"), "n2")
    await world.settle(200.0)
    assert world.api.claim("c").allocation is not None


async def test_a_later_filter_that_finds_a_node_keeps_the_allocation(world: World, small: Objects) -> None:
    service = await allocated(world, small)
    await service.filter(world.api.pod("p"), "n2")
    assert (await service.filter(world.api.pod("p"), "n1", "n2")).NodeNames == ["n1"]
    report(world, "p")
    await world.settle(200.0)
    assert world.api.claim("c").allocation is not None


async def test_a_claim_that_changed_meanwhile_is_judged_anew(world: World, small: Objects) -> None:
    service = await allocated(world, small)
    await service.filter(world.api.pod("p"), "n2")
    report(world, "p")
    world.api.hooks["deallocate"] = lambda: world.api.set_status("c", reserved_for=(consumer("late"),))
    await world.settle(200.0)
    claim = world.api.claim("c")
    assert claim.allocation is not None
    assert [entry.name for entry in claim.status.reserved_for] == ["late"]


async def test_clearing_can_be_switched_off(world: World, small: Objects) -> None:
    service = await allocated(world, small, limits=Limits(sweep_seconds=0.0, deallocate=False))
    await service.filter(world.api.pod("p"), "n2")
    report(world, "p")
    await world.settle(200.0)
    assert world.api.claim("c").allocation is not None


async def test_while_an_allocation_is_being_cleared_no_bind_counts_on_it(world: World, small: Objects) -> None:
    service = await allocated(world, small, "p")
    await service.filter(world.api.pod("p"), "n2")
    report(world, "p")
    service.client.latency = 1.0
    while "deallocate" not in service.client.calls:
        await world.settle(0.01)
    error = await service.bind(world.api.pod("p"), "n1")
    assert error == "resource claim default/c is in the process of being allocated"
    await world.settle(5.0)
    assert await service.bind(world.api.pod("p"), "n2") == ""


# --- left behind ------------------------------------------------------------------------------------------------------


async def test_an_idle_allocation_is_swept(world: World, small: Objects) -> None:
    await allocated(world, small, limits=Limits())
    await world.settle(20.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(20.0)
    assert world.api.claim("c").allocation is None


async def test_an_idle_allocation_that_a_pod_fits_with_is_kept(world: World, small: Objects) -> None:
    service = await allocated(world, small, limits=Limits())
    for _ in range(20):
        assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1"]
        await world.settle(10.0)
    assert world.api.claim("c").allocation is not None


@pytest.mark.parametrize(("limits", "seconds"), [(OURS, 95.0), (Limits(), 675.0)])
async def test_an_allocation_of_a_pod_that_is_never_bound_is_swept(
    world: World, small: Objects, limits: Limits, seconds: float
) -> None:
    await allocated(world, small, "p", limits=limits)
    await world.settle(seconds - 20.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(20.0)
    assert world.api.claim("c").allocation is None


@pytest.mark.parametrize("limits", [OURS, Limits()])
async def test_allocations_of_bound_pods_and_of_several_pods_stay(world: World, small: Objects, limits: Limits) -> None:
    service = await allocated(world, small, limits=limits)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.add(make_claim("d"), make_pod("q", "d"), make_pod("r", "d"))
    assert await service.bind(world.api.pod("q"), "n2") == ""
    world.api.set_status("d", reserved_for=(consumer("q"), consumer("r")))
    await world.settle(2000.0)
    assert world.api.claim("c").allocation is not None
    assert world.api.claim("d").allocation is not None


async def test_sweeping_goes_on_after_a_conflict(world: World, small: Objects) -> None:
    service = await allocated(world, small, limits=Limits())
    service.client.fail("deallocate", ConflictError(409, "Conflict"), times=2)
    await world.settle(100.0)
    assert world.api.claim("c").allocation is None
    assert service.counted(CLEAR_ERRORS, "idle") == 2


async def test_a_new_leader_hears_the_schedulers_for_a_while_before_it_sweeps(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c"), make_pod("first", "c"))
    leader, standby = world.service(limits=NO_SWEEP), world.service(limits=OURS)
    assert await leader.bind(world.api.pod("first"), "n1") == ""
    world.api.set_status("c", reserved_for=())
    world.api.drop(world.api.pod("first"))
    await world.settle(100.0)
    await leader.kill()
    standby.start()
    await world.settle(25.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(15.0)
    assert world.api.claim("c").allocation is None


# --- stories of the chaos ---------------------------------------------------------------------------------------------


async def test_a_claim_that_came_and_went_while_the_watch_was_broken_is_forgotten(world: World, small: Objects) -> None:
    """The bind met the claim by a live read; the list after the gap did not have it, so no deletion was ever told."""
    world.add(*small)
    service = world.service()
    service.start()
    service.watch.disconnect()
    world.add(make_claim("c", count=2, pod="p"), make_pod("p", "c"))
    service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert world.api.claim("c").allocation is not None
    world.api.delete_pod("p")
    await world.settle(1.0)
    service.watch.reconnect()
    world.add(make_claim("d", count=2), make_pod("q", "d"))
    await world.settle(30.0)
    assert (await service.filter(world.api.pod("q"))).NodeNames == ["n1", "n2"]


async def test_pods_that_are_left_with_a_broken_device_do_not_wait_for_each_other(world: World, small: Objects) -> None:
    """A crash left two pods in reservedFor; the device then failed. Each pod kept the claim for the other one."""
    await allocated(world, small, "p", "r", limits=OURS)
    world.add(make_pod("r", "c"))
    service = world.services[-1]
    for _ in range(12):
        for name in ("p", "r"):
            if (await service.filter(world.api.pod(name), "n2")).NodeNames == []:
                report(world, name)
        await world.settle(10.0)
    assert world.api.claim("c").allocation is None or (await service.filter(world.api.pod("p"), "n2")).NodeNames


async def test_pods_do_not_wait_for_ever_for_devices_that_never_get_ready(world: World) -> None:
    """Two pods share a claim whose device has ten minutes to get ready, and both are refused meanwhile. Their refusals
    were remembered longer than the claim that stood in their way.
    """
    slow = {"name": "slow", "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
    world.add(make_class(), make_node("n1"), make_node("n2"), make_slice("n1", [slow]), make_slice("n2", ["a"]))
    world.add(make_claim("c"), make_pod("p", "c"), make_pod("r", "c"))
    service = world.service(limits=OURS)
    service.start()
    assert await service.bind(world.api.pod("p"), "n1") == failure.WAITING
    world.api.set_status("c", reserved_for=(consumer("p"), consumer("r")))
    await world.settle()
    for name in ("p", "r"):
        assert (await service.filter(world.api.pod(name), "n2")).NodeNames == []
        report(world, name)
    await world.settle(500.0)
    assert world.api.claim("c").allocation is not None
    assert (await service.filter(world.api.pod("p"), "n2")).NodeNames == []
    await world.settle(110.0)
    assert world.api.claim("c").allocation is None


async def test_pods_that_have_half_of_what_they_need_do_not_wait_for_each_other(world: World) -> None:
    """A crash left each of two pods with one of the two devices there are. Being asked for kept what each had, except
    while nothing else changed.
    """
    names = "c1", "c2", "d1", "d2"
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a", "b"]), *map(make_claim, names))
    service = world.service(limits=OURS)
    service.start()
    for first, claim, pod in (("x", "c1", "p"), ("y", "d1", "q")):
        world.add(make_pod(first, claim))
        assert await service.bind(world.api.pod(first), "n1") == ""
        world.api.set_status(claim, reserved_for=(consumer(pod),))
        world.api.drop(world.api.pod(first))
    world.add(make_pod("p", "c1", "c2"), make_pod("q", "d1", "d2"))
    await world.settle()
    for round_ in range(1, 12):
        world.add(make_slice("elsewhere", ["x"], generation=round_))
        await world.settle(10.0)
        for name in ("p", "q"):
            if (await service.filter(world.api.pod(name))).NodeNames:
                assert await service.bind(world.api.pod(name), "n1") == ""
                return
            report(world, name)
    raise AssertionError("neither of them was bound")


async def test_pods_of_other_schedulers_keep_the_claim_they_share(world: World, small: Objects) -> None:
    await allocated(world, small, "p", "r", limits=OURS)
    world.add(make_pod("r", "c", schedulerName="another"))
    service = world.services[-1]
    report(world, "r")
    for _ in range(12):
        await service.filter(world.api.pod("p"), "n2")
        report(world, "p")
        await world.settle(10.0)
    assert len(world.api.claim("c").status.reserved_for) == 2


async def test_a_bound_pod_keeps_its_devices_while_the_watch_of_pods_is_broken(world: World, small: Objects) -> None:
    """The watch of pods was broken for more than a minute. A pod that had been bound meanwhile still looked as if it
    never would be, and the sweep took the devices away under it.
    """
    world.add(*small, make_claim("c"), make_pod("p", "c"))
    service = world.service(limits=OURS)
    service.start()
    service.watch.disconnect([Pod])
    assert await service.bind(world.api.pod("p"), "n1") == ""
    await world.settle(200.0)
    assert world.api.claim("c").reserved_for("uid-p")


async def test_a_reservation_that_another_replica_has_just_adopted_is_not_left_behind(
    world: World, small: Objects
) -> None:
    """Adopting changes a mark on the claim, not its consumers. The sweep counted from the reservation, and cleared it
    while the binding of the other replica was on its way.
    """
    await allocated(world, small, "p", limits=OURS)
    other = world.service(limits=OURS)
    await world.settle(OURS.settled_seconds - 4.0)
    other.client.fail("bind_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=15.0)
    other.client.fail("read_pod", OutcomeUnknownError(0, "Timeout"), times=1000)
    other.spawn(other.bind(world.api.pod("p"), "n1"))
    await world.settle(20.0)
    assert world.api.pod("p").spec.node_name == "n1"
    assert world.api.claim("c").reserved_for("uid-p")


@pytest.mark.parametrize("consumers", [("p",), ("p", "r")])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_claim_that_is_being_deleted_gives_its_devices_back(
    world: World, small: Objects, consumers: tuple[str, ...], asked: bool
) -> None:
    """A crash had left it reserved for pods that are not bound. They cannot use it any more, but the claim controller
    keeps the reservations as long as the pods exist. Asked for or not, except that several pods have to be asked for.
    """
    service = await allocated(world, small, *consumers, limits=OURS)
    world.add(make_pod("r", "c"))
    world.api.delete_claim(world.api.claim("c"))
    await world.settle()
    for _ in range(12):
        for name in consumers if asked else ():
            assert (await service.filter(world.api.pod(name))).NodeNames == []
            report(world, name)
        await world.settle(10.0)
        world.api.clean_up()
    freed = asked or len(consumers) == 1
    assert ((ResourceClaim, "default/c") not in world.api.objects) == freed
