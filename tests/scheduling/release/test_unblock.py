"""An allocation that keeps its pod from running is cleared, unless somebody may count on it."""

from __future__ import annotations

import asyncio
from unittest import mock

import msgspec
import pytest

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.release.unused import NAMES_PER_TURN, Unblocker
from tests.support.scheduling.leftovers import OURS, allocated, consumer, report
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World


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
    assert service.client.requeues >= 2


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


@pytest.mark.parametrize(
    ("config", "kept"), [(OURS, True), (SchedulingConfig(), False)], ids=["ours known", "ours not known"]
)
async def test_a_pod_of_another_scheduler_gets_no_allocation_cleared_when_ours_are_known(
    world: World, small: Objects, config: SchedulingConfig, kept: bool
) -> None:
    service = await allocated(world, small, config=msgspec.structs.replace(config, sweep_after=0.0))
    world.add(make_pod("s", "c", schedulerName="default-scheduler"))
    assert (await service.filter(world.api.pod("s"), "n2")).NodeNames == []
    report(world, "s")
    await world.settle(200.0)
    assert (world.api.claim("c").allocation is not None) == kept


@pytest.mark.parametrize(("scheduler", "kept"), [("default-scheduler", True), ("dra-scheduler", False)])
async def test_a_claim_in_the_way_that_a_pod_of_another_scheduler_has_reserved_stays(
    world: World, small: Objects, scheduler: str, kept: bool
) -> None:
    """Its device is in another claim, too, and it is unknown which of the two came first."""
    maker = await allocated(world, small, "p", "s")
    claim, rival = world.api.claim("c"), make_claim("rival")
    meta = msgspec.structs.replace(rival.metadata, finalizers=claim.metadata.finalizers)
    status = msgspec.structs.replace(claim.status, reserved_for=())
    world.add(msgspec.structs.replace(rival, metadata=meta, status=status), make_pod("s", "c", schedulerName=scheduler))
    await maker.kill()
    service = world.service(config=msgspec.structs.replace(OURS, sweep_after=0.0))
    service.start()
    assert (await service.filter(world.api.pod("p"), "n2")).NodeNames == []
    report(world, "p")
    await world.settle(200.0)
    assert (world.api.claim("c").allocation is not None) == kept


async def test_clearing_can_be_switched_off(world: World, small: Objects) -> None:
    service = await allocated(world, small, config=SchedulingConfig(sweep_after=0.0, deallocate=False))
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


async def test_pods_that_are_not_due_yet_are_examined_in_turns(world: World) -> None:
    service = world.service(config=SchedulingConfig(remembered_pods=3 * NAMES_PER_TURN))
    unblocker = Unblocker(service.extender.view, mock.create_autospec(Clearer, instance=True))
    for number in range(3 * NAMES_PER_TURN):
        unblocker.refused(make_pod(f"p{number}"), ["n1", "n2"], (make_claim("c"),))
    task, turns = asyncio.create_task(unblocker.work()), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
