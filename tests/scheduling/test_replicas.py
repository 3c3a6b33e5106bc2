"""Two active replicas, and strangers: never one device in the claims of two bound pods."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec.structs import replace

from dra_extender.api.decoding import convert
from dra_extender.api.errors import ConflictError, OutcomeUnknownError, RejectedError
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceClaimConsumerReference, ResourceSlice
from dra_extender.scheduling.bind.failure import COUNTERS_UNKNOWN, NOT_LEADER, TAKEN
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import NOT_AVAILABLE
from dra_extender.scheduling.outcomes import CONFLICTS
from tests.support.simulation.api import devices
from tests.support.simulation.objects import (
    DRIVER,
    Json,
    Objects,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import World


@pytest.mark.parametrize("seed", range(20))
async def test_two_active_replicas_never_double_a_device(world: World, small: Objects, seed: int) -> None:
    dice = random.Random(seed)
    names = [f"{index}" for index in range(8)]
    world.add(*small, *(make_claim(f"c{n}") for n in names), *(make_pod(f"p{n}", f"c{n}") for n in names))
    replicas = [world.service(lag=dice.choice([0.0, 0.001, 0.01, 0.2])) for _ in range(2)]
    for _ in range(60):
        pending = [n for n in names if not world.api.pod(f"p{n}").spec.node_name]
        calls = [
            dice.choice(replicas).bind(world.api.pod(f"p{n}"), dice.choice(["n1", "n2"]))
            for n in dice.sample(pending, min(3, len(pending)))
        ]
        await asyncio.gather(*calls)
        await world.settle(dice.random())
    bound = [n for n in names if world.api.pod(f"p{n}").spec.node_name]
    assert len(bound) == 4
    assert world.api.doubles() == []


@pytest.mark.parametrize("seed", range(10))
async def test_replicas_share_claims_without_losing_a_reservation(world: World, small: Objects, seed: int) -> None:
    names = [f"p{index}" for index in range(6)]
    world.add(*small, make_claim("c"), *(make_pod(name, "c") for name in names))
    replicas = [world.service(lag=0.01), world.service(lag=0.05)]
    for _ in range(10):
        calls = []
        for index, name in enumerate(names):
            pod = world.api.pod(name)
            if not pod.spec.node_name:
                nodes = (await replicas[index % 2].filter(pod)).NodeNames
                if nodes:
                    calls.append(replicas[index % 2].bind(pod, nodes[0]))
        await asyncio.gather(*calls)
        await world.settle(1.0)
    assert {world.api.pod(name).spec.node_name for name in names} in ({"n1"}, {"n2"})
    assert len(world.api.claim("c").status.reserved_for) == 6


FLEETS = ("a", "b")


def fleet_class(fleet: str) -> DeviceClass:
    """The devices whose attribute names the fleet."""
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].fleet == "{fleet}"'}}
    return convert(DeviceClass, {"metadata": {"name": fleet, "uid": fleet}, "spec": {"selectors": [selector]}})


@pytest.mark.parametrize("seed", range(5))
async def test_services_whose_schedulers_have_devices_of_their_own_never_meet(world: World, seed: int) -> None:
    """Each serves one scheduler, and pods of this scheduler use one class; every scheduler asks for every node."""
    dice, numbers = random.Random(seed), range(8)
    for fleet in FLEETS:
        exactly = {"deviceClassName": fleet, "allocationMode": "ExactCount", "count": 1}
        requests = [{"name": "r", "exactly": exactly}]
        slices = (
            make_slice(
                f"{fleet}{node}", [{"name": f"d{i}", "attributes": {"fleet": {"string": fleet}}} for i in numbers]
            )
            for node in numbers[:2]
        )
        world.add(fleet_class(fleet), *(make_node(f"{fleet}{node}") for node in numbers[:2]), *slices)
        for number in numbers:
            name = f"{fleet}-{number}"
            world.add(make_claim(name, requests=requests), make_pod(name, name, schedulerName=fleet))
    services = {each: world.service(config=SchedulingConfig(scheduler_names=frozenset({each}))) for each in FLEETS}
    await world.settle()

    async def place(fleet: str, number: int) -> str:
        await asyncio.sleep(dice.random() / 100)
        pod, service = world.api.pod(f"{fleet}-{number}"), services[fleet]
        return await service.bind(pod, dice.choice((await service.filter(pod)).NodeNames or ()))

    assert set(await asyncio.gather(*(place(each, number) for number in numbers for each in FLEETS))) == {""}
    assert world.api.doubles() == []
    for service in services.values():
        assert not any(name == CONFLICTS.name for name, _ in service.counts)


async def test_a_late_write_of_a_deposed_replica_fails(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    old, new = world.service(), world.service()
    old.client.latency = 2.0
    late = old.spawn(old.bind(world.api.pod("p"), "n1"))
    await world.settle(2.5)
    assert await new.bind(world.api.pod("q"), "n1") == ""
    assert await late != ""
    assert world.api.claim("c").allocation is None
    assert len(devices(world.api.claim("d"))) == 1


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_a_replica_that_is_deposed_during_a_bind_writes_no_further(
    world: World, pending: Objects, writes: int
) -> None:
    service = world.service(*pending)
    forward = len(world.api.log) + writes
    service.extender.leading = lambda: len(world.api.log) < forward
    assert await service.bind(world.api.pod("p"), "n1") == NOT_LEADER
    assert not world.api.pod("p").spec.node_name
    assert world.api.claim("c").allocation is None


# --- stories of the chaos ---------------------------------------------------------------------------------------------


async def test_a_hold_ends_when_another_replica_has_bound_the_pod(world: World, pending: Objects) -> None:
    """One replica did not learn what had become of its write, then found the pod bound by the other one, and answered
    success. The hold stayed for ever: of a device that is shared, it was room that nobody could use.
    """
    world.add(*pending)
    one, other = world.service(), world.service()
    one.client.fail("write_status", OutcomeUnknownError(0, "Timeout"))
    one.client.fail("read_claim", OutcomeUnknownError(0, "Timeout"), times=1000)
    one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert await other.bind(world.api.pod("p"), "n1") == ""
    await world.settle(30.0)
    one.client.faults.clear()
    await world.settle(10.0)
    assert len(one.extender.view.binding) == 0
    assert one.extender.view.ledger.holds() == ()
    assert world.api.claim("c").reserved_for("uid-p")


def divided() -> Objects:
    """A node with a card in two partitions, of which only one fits at a time, and a device of two units to share."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    takes = [{"counterSet": "card", "counters": {"units": {"value": "2"}}}]
    listed: list[Json] = [
        {"name": name, "attributes": {"model": {"string": name}}, "consumesCounters": takes} for name in ("one", "two")
    ]
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
    listed.append({"name": "both", "attributes": {"model": {"string": "both"}}, **shared})
    counters = [{"name": "card", "counters": {"units": {"value": "3"}}}]
    bodies: list[Json] = [{"devices": listed}, {"sharedCounters": counters}]
    slices = [
        {"metadata": {"name": f"slice-{n}"}, "spec": {"driver": DRIVER, "nodeName": "n1", "pool": pool, **body}}
        for n, body in enumerate(bodies)
    ]
    return [make_class(), make_node("n1"), *(convert(ResourceSlice, found) for found in slices)]


def of_model(name: str, model: str) -> ResourceClaim:
    expression = f'device.attributes["{DRIVER}"].model == "{model}"'
    exactly = {"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"}
    request = {"name": "r", "exactly": exactly | {"selectors": [{"cel": {"expression": expression}}]}}
    return make_claim(name, requests=[request])


@pytest.mark.parametrize(
    ("models", "gone"),
    [
        pytest.param(("both", "both"), 0, id="the capacity of a shared device"),
        pytest.param(("one", "two"), 0, id="the counters that devices consume"),
        pytest.param(("one", "two"), 1, id="the counters there are"),
    ],
)
async def test_nothing_is_overdrawn_when_its_limits_vanish_before_rivals_are_looked_for(
    world: World, models: tuple[str, str], gone: int
) -> None:
    """Two replicas took more than there was. The slice that said how much there is went before they had seen each
    other's writes, so neither found a rival, and both bound.
    """
    world.add(*divided(), of_model("c", models[0]), of_model("d", models[1]), make_pod("p", "c"), make_pod("q", "d"))
    one, other = world.service(lag=0.5), world.service(lag=0.5)
    binds = [one.spawn(one.bind(world.api.pod("p"), "n1")), other.spawn(other.bind(world.api.pod("q"), "n1"))]
    for service in (one, other):
        service.watch.lags[ResourceSlice] = 0.1
    await world.settle(0.1)
    assert world.api.claim("c").allocation is not None
    assert world.api.claim("d").allocation is not None
    world.api.drop(world.api.all(ResourceSlice)[gone])
    first, second = await asyncio.gather(*binds)
    assert first in ("", COUNTERS_UNKNOWN)
    assert second == COUNTERS_UNKNOWN
    assert world.api.claim("d").allocation is None


@pytest.mark.parametrize("gone", [0, 1])
async def test_an_allocation_that_nobody_has_verified_waits_for_its_limits(world: World, gone: int) -> None:
    """The same, but a third replica took over what the first one had written and bound it unverified."""
    world.add(*divided(), of_model("c", "one"), of_model("d", "two"), make_pod("p", "c"), make_pod("q", "d"))
    one, other = world.service(lag=0.5), world.service(lag=0.5)
    one.spawn(one.bind(world.api.pod("p"), "n1"))
    late = other.spawn(other.bind(world.api.pod("q"), "n1"))
    await world.settle(0.1)
    await one.kill()
    assert await late != ""
    assert world.api.claim("d").allocation is None
    lost = world.api.all(ResourceSlice)[gone]
    world.add(make_claim("other"), make_pod("r", "other"))
    third = world.service()
    third.start()
    assert (await third.filter(world.api.pod("r"))).NodeNames == ["n1"]
    assert await third.bind(world.api.pod("r"), "n1") == ""
    world.api.drop(lost)
    await world.settle()
    assert (await third.filter(world.api.pod("p"))).NodeNames == []
    assert await third.bind(world.api.pod("p"), "n1") == NOT_AVAILABLE
    world.add(lost)
    await world.settle()
    assert (await third.filter(world.api.pod("p"))).NodeNames == ["n1"]
    assert await third.bind(world.api.pod("p"), "n1") == ""


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_only_a_pod_on_the_node_of_an_allocation_shows_that_it_was_verified(world: World, node: str) -> None:
    """A replica that took more than there was ended before it looked for rivals. Users create pods with a node, and
    kube-controller-manager reserves their claims for them.
    """
    world.add(*divided(), of_model("c", "one"), of_model("d", "two"), make_pod("p", "c"), make_pod("q", "d"))
    one, other = world.service(lag=0.5), world.service(lag=0.5)
    other.client.kill_on = ("write_status", "after")
    bind = one.spawn(one.bind(world.api.pod("p"), "n1"))
    other.spawn(other.bind(world.api.pod("q"), "n1"))
    await world.settle(0.1)
    await other.kill()
    assert await bind == ""
    claim, created = world.api.claim("d"), make_pod("created", "d", node=node)
    assert claim.allocation is not None
    user = ResourceClaimConsumerReference(resource="pods", name="created", uid=created.metadata.uid)
    users = (*claim.status.reserved_for, user)
    world.add(replace(claim, status=replace(claim.status, reserved_for=users)), created)
    third = world.service()
    third.start()
    await world.settle(1.0)
    assert (await third.filter(world.api.pod("q"))).NodeNames == (["n1"] if node == "n1" else [])
    world.api.violations.clear()  # the user has bound this pod, not the service


async def test_a_device_that_somebody_takes_during_a_bind_is_not_written_onto(world: World, small: Objects) -> None:
    """A write that has to be taken back would make kube-scheduler's own plugin believe that the device is free."""
    world.add(*small, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    slow, quick = world.service(), world.service()
    slow.client.latency = 0.1
    bind = slow.spawn(slow.bind(world.api.pod("p"), "n1"))
    await world.settle(0.02)
    assert await quick.bind(world.api.pod("q"), "n1") == ""
    assert await bind == TAKEN
    assert slow.client.calls == ["add_finalizer"]
    assert slow.counted(CONFLICTS, "device_taken") == 1
    assert world.api.claim("c").allocation is None
    assert await slow.bind(world.api.pod("p"), "n1") == ""
    assert devices(world.api.claim("c")).isdisjoint(devices(world.api.claim("d")))


async def test_a_device_that_somebody_takes_is_not_written_onto_when_a_write_is_repeated(
    world: World, small: Objects
) -> None:
    """The device was looked at after the finalizer only, not again after a conflict."""
    world.add(*small, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    slow, quick = world.service(), world.service()
    slow.client.latency = 0.1
    slow.client.fail("write_status", ConflictError(409, "Conflict"))
    bind = slow.spawn(slow.bind(world.api.pod("p"), "n1"))
    await world.settle(0.12)
    assert slow.client.calls == ["add_finalizer", "write_status"]
    assert await quick.bind(world.api.pod("q"), "n1") == ""
    assert await bind == TAKEN
    assert slow.client.calls == ["add_finalizer", "write_status", "read_claim"]


async def test_what_another_replica_has_written_is_not_taken_for_our_lost_write(world: World, small: Objects) -> None:
    """One replica had lost the reply to a write that was never stored, and went back. It read the same reservation,
    which the other replica had made to bind the pod, took it for its own, and removed it.
    """
    world.add(*small, make_claim("c"), make_pod("first", "c"), make_pod("p", "c"))
    one, other = world.service(), world.service()
    assert await other.bind(world.api.pod("first"), "n1") == ""
    await world.settle()
    one.client.fail("write_status", OutcomeUnknownError(0, "Timeout"))
    one.client.fail("read_claim", RejectedError(403, "Forbidden"), times=3)
    failed = one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(0.02)
    assert await other.bind(world.api.pod("p"), "n1") == ""
    assert await failed != ""
    assert world.api.claim("c").reserved_for("uid-p")


async def test_what_another_replica_allocated_anew_is_not_taken_back_after_an_outage(
    world: World, pending: Objects
) -> None:
    """One replica had allocated a claim and could not bind the pod. Before it took the allocation back, the API server
    was out of its reach for minutes. The other one cleared what nobody used, allocated the claim again and bound the
    pod; then the first one came back, found the pod's reservation in the claim, and took it for its own.
    """
    world.add(*pending)
    one, other = world.service(), world.service()
    other.start()
    one.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    for operation in ("deallocate", "read_claim"):
        one.client.fail(operation, OutcomeUnknownError(503, "ServiceUnavailable"), times=1000)
    one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert world.api.claim("c").allocation is not None
    one.watch.disconnect()
    while world.api.claim("c").allocation is not None:
        await world.settle(1.0)
    assert await other.bind(world.api.pod("p"), "n1") == ""
    one.client.faults.clear()
    await world.settle(30.0)
    assert len(one.extender.view.binding) == 0
    assert world.api.claim("c").reserved_for("uid-p")


async def test_what_another_replica_allocated_anew_is_not_taken_back_twice(world: World, pending: Objects) -> None:
    """One replica took its allocation back, and the reply was lost: the write was carried out some seconds later. Then
    the other one allocated the claim again and bound the pod. When the first one could read the claim again, it found
    the pod's reservation still there, as it seemed, and took it away.
    """
    world.add(*pending)
    one, other = world.service(), world.service()
    one.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    one.client.fail("deallocate", OutcomeUnknownError(0, "Timeout"), "late", delay=5.0)
    one.client.fail("read_claim", OutcomeUnknownError(503, "ServiceUnavailable"), times=1000)
    one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(10.0)
    assert world.api.claim("c").allocation is None
    assert await other.bind(world.api.pod("p"), "n1") == ""
    one.client.faults.clear()
    await world.settle(30.0)
    assert len(one.extender.view.binding) == 0
    assert world.api.claim("c").reserved_for("uid-p")
