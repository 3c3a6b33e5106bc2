"""What chaos found: pods that waited for each other, and devices that were kept for nobody or taken from somebody."""

from __future__ import annotations

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.errors import OutcomeUnknownError
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.bind import failure
from tests.support.scheduling.leftovers import OURS, allocated, consumer, report
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import World


async def test_a_claim_that_came_and_went_while_the_watch_was_broken_is_forgotten(world: World, small: Objects) -> None:
    """The bind met the claim by a live read; the list after the gap did not have it, so no deletion was ever told."""
    service = world.service(*small)
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
    await allocated(world, small, "p", "r", config=OURS)
    world.add(make_pod("r", "c"))
    service = world.services[-1]
    for _ in range(12):
        for name in ("p", "r"):
            if (await service.filter(world.api.pod(name), "n2")).NodeNames == []:
                report(world, name)
        await world.settle(10.0)
    assert world.api.claim("c").allocation is None or (await service.filter(world.api.pod("p"), "n2")).NodeNames


async def test_pods_do_not_wait_for_ever_for_devices_that_never_get_ready(world: World) -> None:
    """Two pods share a claim whose device has ten minutes to get ready, and both are refused. Their refusals
    were remembered longer than the claim that stood in their way.
    """
    slow = {"name": "slow", "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
    world.add(make_class(), make_node("n1"), make_node("n2"), make_slice("n1", [slow]), make_slice("n2", ["a"]))
    service = world.service(make_claim("c"), make_pod("p", "c"), make_pod("r", "c"), config=OURS)
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
    service = world.service(config=OURS)
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
    await allocated(world, small, "p", "r", config=OURS)
    world.add(make_pod("r", "c", schedulerName="another"))
    service = world.services[-1]
    report(world, "r")
    for _ in range(12):
        await service.filter(world.api.pod("p"), "n2")
        report(world, "p")
        await world.settle(10.0)
    assert len(world.api.claim("c").status.reserved_for) == 2


async def test_a_bound_pod_keeps_its_devices_while_the_watch_of_pods_is_broken(world: World, pending: Objects) -> None:
    """The watch of pods was broken for more than a minute. A pod that had been bound meanwhile still looked as if it
    never would be, and the sweep took the devices away under it.
    """
    service = world.service(*pending, config=OURS)
    service.start()
    service.watch.disconnect([Pod])
    assert await service.bind(world.api.pod("p"), "n1") == ""
    await world.settle(200.0)
    assert world.api.claim("c").reserved_for("uid-p")


async def test_a_late_binding_fails_when_the_reservation_that_it_relies_on_was_released(
    world: World, small: Objects
) -> None:
    """Another replica has adopted an old reservation, which only a mark on the claim shows. Users can write the mark,
    so it delays no release.
    """
    await allocated(world, small, "p", config=OURS)
    other = world.service(config=OURS)
    await world.settle(OURS.abandoned_seconds - 4.0)
    other.client.fail("bind_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=15.0)
    other.client.fail("read_pod", OutcomeUnknownError(0, "Timeout"), times=1000)
    other.spawn(other.bind(world.api.pod("p"), "n1"))
    await world.settle(20.0)
    assert (world.api.pod("p").spec.node_name, world.api.claim("c").allocation) == ("", None)


@pytest.mark.parametrize("consumers", [("p",), ("p", "r")])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_claim_that_is_being_deleted_gives_its_devices_back(
    world: World, small: Objects, consumers: tuple[str, ...], asked: bool
) -> None:
    """A crash had left it reserved for pods that are not bound. They cannot use it any more, but the claim controller
    keeps the reservations as long as the pods exist. Asked for or not, except that several pods have to be asked for.
    """
    service = await allocated(world, small, *consumers, config=OURS)
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
