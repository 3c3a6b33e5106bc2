"""Devices that must become ready before the pod is bound."""

from __future__ import annotations

from collections import Counter

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import AllocatedDeviceStatus, ResourceClaim
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.api import devices
from tests.support.simulation.objects import DRIVER, Json, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World

SLOW = {"name": "slow", "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
LONG = SchedulingConfig(bind_timeout=1000.0)


def prepare(world: World, config: SchedulingConfig = LONG, features: FeatureGates | None = None) -> Service:
    """One node with one such device."""
    world.add(make_class(), make_node("n1"), make_slice("n1", [SLOW]), make_claim("c"), make_pod("p", "c"))
    service = world.service(config=config, features=features)
    service.start()
    return service


def report(world: World, claim: str = "c", device: str = "slow", **conditions: str) -> None:
    """What the driver says about a claim's device."""
    listed: list[Json] = [{"type": kind, "status": value, "reason": "Why"} for kind, value in conditions.items()]
    entry: Json = {"driver": DRIVER, "pool": "n1", "device": device, "conditions": listed}
    world.api.set_status(claim, devices=(convert(AllocatedDeviceStatus, entry),))


async def test_the_pod_is_bound_as_soon_as_the_device_is_ready(world: World) -> None:
    service = prepare(world)
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(100.0)
    assert not bind.done()
    assert not world.api.pod("p").spec.node_name
    report(world, ready="False")
    await world.settle(1.0)
    assert not bind.done()
    report(world, ready="True")
    await world.settle(0.1)
    assert bind.done()
    assert await bind == ""
    pending = ("BindingConditionsPending", "waiting for binding conditions for device on node n1")
    assert service.client.events.count(pending) == 1


async def test_while_a_pod_waits_a_change_of_one_claim_costs_little_however_many_use_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, looked, reserved_for = [f"c{number}" for number in range(100)], Counter[str](), ResourceClaim.reserved_for

    def counting(claim: ResourceClaim, uid: str) -> bool:
        looked[claim.metadata.name] += 1
        return reserved_for(claim, uid)

    service = prepare(world)
    world.add(*(make_claim(name, requests=[]) for name in names), make_pod("q", "c", *names))
    service.spawn(service.bind(world.api.pod("q"), "n1"))
    await world.settle()
    monkeypatch.setattr(ResourceClaim, "reserved_for", counting)
    world.add(with_metadata(world.api.claim("c0"), annotations={"changed": ""}))
    await world.settle(0.1)
    assert looked["c0"] > 0
    assert not looked.keys() - {"c0"}, "each change makes the bind check all claims of the pod"


async def test_the_allocation_says_since_when_in_whole_seconds(world: World) -> None:
    service = prepare(world)
    await world.settle(1.7)
    service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle()
    allocation = world.api.claim("c").allocation
    assert allocation is not None
    assert allocation.allocation_timestamp == "2026-01-01T00:00:01Z"


async def test_without_the_gates_there_is_no_timestamp(world: World) -> None:
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a"]), make_claim("c"), make_pod("p", "c"))
    service = world.service(features=FeatureGates(DRAResourceClaimDeviceStatus=False))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    allocation = world.api.claim("c").allocation
    assert allocation is not None
    assert allocation.allocation_timestamp is None


async def test_a_failed_device_is_given_back(world: World) -> None:
    service = prepare(world)
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle()
    report(world, bad="True")
    assert (await bind).startswith("device binding failed: claim=c, reason=Why")
    assert world.api.claim("c").allocation is None


async def test_a_device_that_takes_too_long_is_given_back(world: World) -> None:
    service = prepare(world)
    started = world.clock.monotonic()
    assert await service.bind(world.api.pod("p"), "n1") == "device binding timeout: claim=c"
    assert 600 <= world.clock.monotonic() - started <= 602
    assert world.api.claim("c").allocation is None


async def test_a_short_call_keeps_the_device_for_the_next_attempt(world: World) -> None:
    service = prepare(world, SchedulingConfig(bind_timeout=10.0))
    pod = world.api.pod("p")
    for _ in range(3):
        assert await service.bind(pod, "n1") == failure.WAITING
        claim = world.api.claim("c")
        assert claim.reserved_for("uid-p")
        await world.settle(60.0)
        assert (await service.filter(pod)).NodeNames == ["n1"]
    report(world, ready="True")
    await world.settle()
    assert await service.bind(pod, "n1") == ""
    assert [name for name, _ in world.api.log].count("write_status") == 1


@pytest.mark.parametrize("state", ["failed", "late"])
async def test_a_device_that_cannot_be_bound_any_more_fits_nowhere_until_it_is_given_back(
    world: World, state: str
) -> None:
    service = prepare(world, SchedulingConfig(bind_timeout=10.0, sweep_after=0.0))
    assert await service.bind(world.api.pod("p"), "n1") == failure.WAITING
    if state == "failed":
        report(world, bad="True")
        await world.settle()
    else:
        await world.settle(700.0)
    answer = await service.filter(world.api.pod("p"))
    assert answer.FailedAndUnresolvableNodes == {"n1": "resourceclaim not available on the node"}
    assert await service.bind(world.api.pod("p"), "n1") == "resourceclaim not available on the node"
    world.api.refuse_pod("p")
    await world.settle(70.0)
    assert world.api.claim("c").allocation is None
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1"]


async def test_a_pod_deleted_while_its_device_gets_ready_frees_it(world: World) -> None:
    service = prepare(world)
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(50.0)
    world.api.delete_pod("p")
    assert await bind in (failure.DELETED, "claim default/c got deallocated elsewhere in the meantime")
    assert world.api.claim("c").allocation is None


async def test_a_claim_deallocated_by_others_ends_the_wait(world: World) -> None:
    service = prepare(world)
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(50.0)
    world.api.set_status("c", allocation=None, reserved_for=(), devices=())
    assert await bind == "claim default/c got deallocated elsewhere in the meantime"


async def test_a_device_that_gets_ready_after_its_time_wakes_the_pod_that_was_refused(world: World) -> None:
    """Chaos set the clock: the pod was refused because of the time, and nothing told it of the device."""
    service = prepare(world, SchedulingConfig(bind_timeout=10.0, sweep_after=0.0))
    assert await service.bind(world.api.pod("p"), "n1") == failure.WAITING
    world.clock.offset += 3600.0
    await world.settle(5.0)
    assert (await service.filter(world.api.pod("p"))).NodeNames == []
    requeued = service.client.requeues
    report(world, ready="True")
    await world.settle(5.0)
    assert service.client.requeues > requeued
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1"]


def prepare_two(world: World, config: SchedulingConfig) -> Service:
    """A pod with two claims, each for one such device."""
    world.add(make_class(), make_node("n1"), make_slice("n1", [SLOW, SLOW | {"name": "other"}]))
    service = world.service(make_claim("c"), make_claim("d"), make_pod("p", "c", "d"), config=config)
    service.start()
    return service


async def test_of_several_claims_only_that_of_the_failed_device_is_given_back(world: World) -> None:
    service = prepare_two(world, SchedulingConfig(bind_timeout=10.0, sweep_after=0.0))
    pod = world.api.pod("p")
    assert await service.bind(pod, "n1") == failure.WAITING
    report(world, "d", "other", ready="True")
    report(world, "c", "slow", bad="True")
    await world.settle()
    answer = await service.filter(pod)
    assert answer.FailedAndUnresolvableNodes == {"n1": "resourceclaim not available on the node"}
    world.api.refuse_pod("p")
    await world.settle(70.0)
    assert world.api.claim("c").allocation is None
    assert devices(world.api.claim("d")) == {(DRIVER, "n1", "other")}
    assert (await service.filter(pod)).NodeNames == ["n1"]


@pytest.mark.parametrize("pause", [1.0, 200.0])
async def test_a_claim_of_an_earlier_attempt_stays_when_the_device_of_another_fails(world: World, pause: float) -> None:
    """A device that is ready, or still may be, has nothing to do with the one that failed, however long ago the
    earlier attempt was.
    """
    service = prepare_two(world, SchedulingConfig(bind_timeout=10.0, sweep_after=0.0))
    pod = world.api.pod("p")
    assert await service.bind(pod, "n1") == failure.WAITING
    await world.settle(pause)
    bind = service.spawn(service.bind(pod, "n1"))
    await world.settle(2.0)
    report(world, bad="True")
    assert (await bind).startswith("device binding failed: claim=c, reason=Why")
    assert devices(world.api.claim("d")) == {(DRIVER, "n1", "other")}
    await service.filter(pod)
    world.api.refuse_pod("p")
    await world.settle(90.0)
    assert world.api.claim("c").allocation is None
    assert devices(world.api.claim("d")) == {(DRIVER, "n1", "other")}


@pytest.mark.parametrize("gate", ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"])
async def test_without_a_gate_a_device_with_conditions_is_not_allocated(world: World, gate: str) -> None:
    service = prepare(world, features=FeatureGates.parse(f"{gate}=false"))
    answer = await service.filter(world.api.pod("p"))
    assert answer.FailedAndUnresolvableNodes == {"n1": "cannot allocate all claims"}
    assert await service.bind(world.api.pod("p"), "n1") == "cannot allocate all claims"


@pytest.mark.parametrize("gate", ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"])
async def test_without_a_gate_nobody_waits_for_a_device_that_is_allocated_already(world: World, gate: str) -> None:
    service = prepare(world, SchedulingConfig(bind_timeout=10.0))
    assert await service.bind(world.api.pod("p"), "n1") == failure.WAITING
    await service.kill()
    other = world.service(features=FeatureGates.parse(f"{gate}=false"))
    report(world, bad="True")
    assert (await other.filter(world.api.pod("p"))).NodeNames == ["n1"]
    assert await other.bind(world.api.pod("p"), "n1") == ""
