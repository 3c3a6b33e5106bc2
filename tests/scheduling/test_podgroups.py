"""Claims that are reserved for a PodGroup: what binds roll back, and which leftovers are released."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.errors import RejectedError
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.groups import GroupKey
from dra_extender.api.meta import ObjectMeta, OwnerReference
from dra_extender.api.resource import (
    FINALIZER,
    POD_GROUP_API,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from dra_extender.api.scheduling import PodGroup
from dra_extender.devices.pods import Pods
from dra_extender.limits import CLAIMS_OF_GROUP
from dra_extender.scheduling import view
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.claims import claim_names
from dra_extender.scheduling.extender import CONTROLLER_SECONDS
from tests.support.counting import calls
from tests.support.scheduling.leftovers import OURS, report
from tests.support.simulation.objects import (
    DRIVER,
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
    world.api.put(PodGroup(ObjectMeta(name="g", namespace="default", uid="uid-g")))
    return world.service(lag=lag, config=OURS, features=FeatureGates(DRAWorkloadResourceClaims=True))


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


async def test_the_pods_of_a_group_are_bound_at_the_same_time_though_kube_scheduler_writes_to_them_meanwhile(
    world: World,
) -> None:
    """It nominates the pods of a group while their binds run: each bind marks their claim again."""
    names = [f"p{number}" for number in range(20)]
    world.add(*one_device(), group_claim("c"), *(make_pod(name, "c", **GROUP) for name in names))
    service = replica(world)

    def nominate() -> None:
        for name in names:
            pod = world.api.pod(name)
            if not pod.spec.node_name:
                world.api.put(replace(pod, status=replace(pod.status, nominated_node_name="n1")))

    service.client.before["bind_pod"] = nominate
    binds = [service.spawn(service.bind(world.api.pod(name), "n1")) for name in names]
    assert {await bind for bind in binds} == {""}


async def refused(world: World, service: Service, seconds: float) -> None:
    """A scheduler tries the pod p again and again."""
    for _ in range(int(seconds / 10)):
        if not (await service.filter(world.api.pod("p"))).NodeNames:
            report(world, "p")
        await world.settle(10.0)


async def test_what_a_killed_replica_reserved_for_a_group_is_released_when_another_claim_has_its_device(
    world: World,
) -> None:
    world.add(*one_device(), group_claim("c"), make_claim("d"), make_pod("p", "c", **GROUP), make_pod("q", "d"))
    first, second = replica(world), replica(world, lag=1.0)
    first.start()
    assert await first.bind(world.api.pod("q"), "n1") == ""
    second.client.kill_on = ("write_status", "after")
    second.spawn(second.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert world.api.doubles() != []
    await refused(world, first, 200.0)
    assert world.api.claim("c").allocation is None
    assert world.api.doubles() == []


@pytest.mark.parametrize("watch", ["works", "is broken", "is broken and comes back"])
async def test_a_claim_of_a_group_is_not_released_while_a_pod_of_the_group_runs_with_it(
    world: World, watch: str
) -> None:
    """A replica that has just started does not know which of two claims had the device first, nor all pods if its watch
    of pods is broken.
    """
    world.add(*one_device(), group_claim("c"), make_pod("p", "c", **GROUP), make_pod("x", "c", **GROUP))
    one = replica(world)
    assert await one.bind(world.api.pod("x"), "n1") == ""
    world.api.drop(world.api.pod("x"))
    report(world, "p")
    service = replica(world)
    await world.settle(1.0)
    service.watch.disconnect((ResourceClaim,) if watch == "works" else (ResourceClaim, Pod))
    world.add(make_pod("q", "c", **GROUP))
    await world.settle(1.0)
    assert await one.bind(world.api.pod("q"), "n1") == ""
    await one.kill()
    world.add(make_allocated("d", "stranger"))
    service.watch.reconnect((ResourceClaim,))
    service.start()
    await world.settle(1.0)
    await refused(world, service, 150.0)
    if watch == "is broken and comes back":
        service.watch.reconnect((Pod,))
    await refused(world, service, 300.0)
    assert (await service.filter(world.api.pod("p"))).NodeNames == []
    assert world.api.claim("c").reserved_for("uid-g")


@pytest.mark.parametrize("appears", [False, True], ids=["known", "appears"])
@pytest.mark.parametrize(("scheduler", "kept"), [("default-scheduler", True), ("dra-scheduler", False)])
async def test_a_claim_of_a_group_stays_while_a_pod_of_another_scheduler_may_use_it(
    world: World, scheduler: str, kept: bool, appears: bool
) -> None:
    service = await leftover(world)
    service.watch.lags = {Pod: 0.5}
    pod = make_pod("q", "c", schedulerName=scheduler, **GROUP)
    if appears:
        world.api.hooks["patch_pod_status"] = lambda: world.add(pod)
    else:
        world.add(pod)
    await refused(world, service, 150.0)
    assert (world.api.claim("c").allocation is not None) == kept


@pytest.mark.parametrize(("other", "kept"), [("is refused, too", False), ("may fit", True), ("runs", True)])
async def test_a_claim_of_a_group_that_is_allocated_where_none_of_its_pods_fits_is_released(
    world: World, small: Objects, other: str, kept: bool
) -> None:
    world.add(*small, group_claim("c"), make_pod("p", "c", **GROUP), make_pod("q", "c", **GROUP))
    service = replica(world)
    service.start()
    service.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    service.client.fail("deallocate", RejectedError(403, "Forbidden"), times=10)
    await service.bind(world.api.pod("p"), "n1")
    if other == "runs":
        assert await service.bind(world.api.pod("q"), "n1") == ""
    elif other == "is refused, too":
        report(world, "q")
    report(world, "p")
    for _ in range(20):
        assert (await service.filter(world.api.pod("p"), "n2")).NodeNames in ([], ["n2"])
        await world.settle(10.0)
    assert (world.api.claim("c").allocation is not None) == kept


def made_anew(uid: str = "uid-g2") -> PodGroup:
    return PodGroup(ObjectMeta(name="g", namespace="default", uid=uid))


def left_by_the_group(claim: ResourceClaim) -> ResourceClaim:
    """The claim, allocated and reserved for the group."""
    user = ResourceClaimConsumerReference(api_group=POD_GROUP_API, resource="podgroups", name="g", uid="uid-g")
    protected = replace(claim.metadata, finalizers=(FINALIZER,))
    return replace(claim, metadata=protected, status=replace(make_allocated("c").status, reserved_for=(user,)))


@pytest.mark.parametrize("claim", [make_claim("c"), group_claim("c")])
async def test_a_pod_keeps_its_device_when_the_reservation_of_an_earlier_group_of_the_name_goes(
    claim: ResourceClaim, world: World
) -> None:
    """kube-controller-manager takes back what is reserved for a group that was replaced."""
    service = replica(world)
    world.add(*one_device(), made_anew(), left_by_the_group(claim), make_claim("d"))
    world.add(make_pod("p", "c", **GROUP), make_pod("q", "d"))
    await world.settle(1.0)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.api.clean_up()
    await world.settle(1.0)
    assert world.api.claim("c").allocation is not None
    assert (await service.filter(world.api.pod("q"))).NodeNames == []


async def test_a_pod_whose_group_is_made_anew_during_its_bind_is_bound_with_a_reservation_that_stays(
    world: World,
) -> None:
    service = replica(world)
    world.add(*one_device(), left_by_the_group(make_claim("c")), make_pod("p", "c", **GROUP))
    world.api.hooks["annotate"] = lambda: world.add(made_anew())
    await world.settle(1.0)
    assert "deallocated elsewhere" in await service.bind(world.api.pod("p"), "n1")
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.api.clean_up()
    assert [user.uid for user in world.api.claim("c").status.reserved_for] == ["uid-p"]


async def test_a_replica_that_still_knows_an_earlier_group_binds_and_releases_nothing_in_vain(world: World) -> None:
    pods = [make_pod(name, "c", **GROUP) for name in ("p", "q")]
    world.add(*one_device(), make_node("n2"), made_anew("uid-g"), left_by_the_group(make_claim("c")), *pods)
    service = replica(world)
    service.start()
    await world.settle(1.0)
    assert await service.bind(world.api.pod("q"), "n1") == ""
    service.cluster.apply(Applied(made_anew("uid-g0")))
    await refused(world, service, 1800.0)
    assert world.api.claim("c").reserved_for("uid-g")
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert [user.uid for user in world.api.claim("c").status.reserved_for] == ["uid-g", "uid-p"]


async def test_a_claim_of_a_group_stays_when_its_last_known_pod_is_gone(world: World) -> None:
    """Nothing shows then whether the watch has shown all pods of the group."""
    service = await leftover(world)
    report(world, "p")
    assert (await service.filter(world.api.pod("p"))).NodeNames == []
    await world.settle(1.0)
    service.watch.disconnect((Pod,))
    world.api.drop(world.api.pod("p"))
    await world.settle(300.0)
    assert world.api.claim("c").allocation is not None


async def leftover(world: World) -> Service:
    """A replica finds a claim that a killed one reserved for the group of the pod p, and a second one of its device."""
    world.add(*one_device(), group_claim("c"), make_pod("p", "c", **GROUP))
    one = replica(world)
    one.client.kill_on = ("write_status", "after")
    one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    world.add(make_allocated("d", "stranger"))
    service = replica(world)
    service.start()
    await world.settle(1.0)
    return service


@pytest.mark.parametrize(("resource", "doubtful"), [("pods", False), ("podgroups", True)])
async def test_only_a_pod_that_runs_with_an_allocation_shows_that_it_was_verified(
    world: World, resource: str, doubtful: bool
) -> None:
    """A user chooses the UID of the group that a claim names: here the UID of a bound pod."""
    world.add(*one_device(), make_pod("runs", node="n1"))
    service = replica(world)
    await world.settle(1.0)
    result = {"request": "r", "driver": DRIVER, "pool": "gone", "device": "d"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": resource, "name": "g", "uid": "uid-runs"}],
    }
    claim = replace(make_claim("c"), status=convert(ResourceClaimStatus, status))
    service.cluster.apply(Applied(claim))
    other = replace(make_claim("d"), status=claim.status)
    service.cluster.apply(Applied(other))
    assert service.extender.view.is_unverified(claim) is doubtful


async def test_the_claims_of_a_groups_pods_are_listed_once_per_round_and_few_claims_are_looked_at_in_one_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{number}" for number in range(20)]
    user = ResourceClaimConsumerReference(api_group=POD_GROUP_API, resource="podgroups", name="g", uid="uid-g")
    status = ResourceClaimStatus(allocation=AllocationResult(), reserved_for=(user,))
    deleted = {"finalizers": (FINALIZER,), "deletion_timestamp": "2026-01-01T00:00:00Z"}
    world.add(*one_device(), *(make_pod(f"p{number}", *names, **GROUP) for number in range(20)))
    world.add(*(with_metadata(replace(group_claim(name), status=status), **deleted) for name in names))
    service = replica(world)
    service.start()
    await world.settle(1.0)
    assert not (await service.filter(world.api.pod("p0"))).NodeNames
    report(world, "p0")
    await world.settle(OURS.abandoned_seconds + 1.0)
    listed: list[str] = []
    per_turn: Counter[int] = Counter()
    turns: list[str] = []

    def list_names(pod: Pod) -> list[str]:
        listed.append(pod.metadata.name)
        return claim_names(pod)

    def members(pods: Pods, group: GroupKey) -> list[Pod]:
        per_turn[len(turns)] += 1
        asyncio.get_running_loop().call_soon(turns.append, group.name)
        return pods_of_group(pods, group)

    pods_of_group = Pods.members
    monkeypatch.setattr(view, "claim_names", list_names)
    monkeypatch.setattr(Pods, "members", members)
    await world.settle(CONTROLLER_SECONDS)
    assert len(listed) == 20
    assert sum(per_turn.values()) >= 20
    assert max(per_turn.values()) <= 2


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
async def test_the_pods_of_a_group_name_so_many_claims_and_no_more(more: int, known: bool, world: World) -> None:
    user = ResourceClaimConsumerReference(api_group=POD_GROUP_API, resource="podgroups", name="g", uid="uid-g")
    claim = replace(group_claim("c"), status=ResourceClaimStatus(reserved_for=(user,)))
    each = 499
    first = make_pod("p0", "c", *(f"c{number}" for number in range(each - 1)), **GROUP)
    count = CLAIMS_OF_GROUP // (each + 1)
    pods = [with_metadata(first, name=f"p{n}", uid=f"p{n}") for n in range(count)]
    others = [make_pod(f"m{n}", **GROUP) for n in range(more)]
    features = FeatureGates(DRAWorkloadResourceClaims=True)
    service = world.service(*one_device(), claim, *pods, *others, features=features)
    found = service.extender.view.users(claim)
    assert len([pod for pod in found if pod is not None]) == (count if known else 0)
    assert (None in found) is not known
    assert calls(lambda: service.extender.view.is_being_bound(claim)) < 20


async def test_a_claim_is_not_released_under_a_pod_of_its_group_that_cannot_be_decoded(world: World) -> None:
    """A pod that requests 1e2000 of something runs, but the service cannot read it."""
    world.add(*one_device(), make_node("n2"), make_slice("n2", ["a"]))
    world.add(group_claim("c"), make_pod("p", "c", **GROUP), make_pod("q", "c", **GROUP))
    first = replica(world)
    assert await first.bind(world.api.pod("q"), "n1") == ""
    await world.settle(1.0)
    await first.kill()
    world.api.unreadable.add((Pod, "default/q"))
    service = replica(world)
    service.start()
    for _ in range(30):
        await service.filter(world.api.pod("p"), "n2")
        report(world, "p")
        await world.settle(10.0)
    assert world.api.claim("c").allocation is not None
