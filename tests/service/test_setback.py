"""An API server that is set back to an older state while the service runs: a restored backup."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from dra_extender.devices.cluster import Cluster
from dra_extender.service.process import ProcessMemory
from dra_extender.service.service import Service
from embedded_cluster import RequestFault
from tests.support.patience import until
from tests.support.service.backups import Backup, back_up, restore
from tests.support.service.readiness import until_ready
from tests.support.service.world import DEVICES, ELECTION, Json, StartService, World, leader


def users(world: World) -> dict[str, list[str]]:
    """By device in `pool/device`: the bound pods that have it."""
    found: dict[str, list[str]] = {}
    for claim in world.store.list("resourceclaims"):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        for pod in claim.get("status", {}).get("reservedFor", []):
            if world.stored("pods", pod["name"])["spec"].get("nodeName"):
                for result in results:
                    found.setdefault(f"{result['pool']}/{result['device']}", []).append(pod["name"])
    return found


def end(world: World, pod: str, claim: str) -> None:
    """The pod is deleted, and the claim controller deallocates its claim."""
    world.store.delete("pods", pod, "default")
    stored = world.stored("resourceclaims", claim)
    stored["status"] = {}
    world.store.update(stored, subresource="status")


async def fits(world: World, service: Service, pod: Json, node: str) -> bool:
    return node in ((await world.filter(service, pod))["NodeNames"] or ())


async def backed_up(world: World, service: Service) -> tuple[str, Json, Backup]:
    """(a node, a pod that needs all its devices, a backup of the time when another pod had them)"""
    node = world.nodes[0]
    for name in ("first", "second"):
        world.claim(name, count=DEVICES)
        world.pod(name, name)
    second = world.stored("pods", "second")
    await until(lambda: service.replica.running.cluster.pods.named("default", "second") is not None)
    assert await world.bind(service, world.stored("pods", "first"), node) == ""
    backup = back_up(world.api)
    end(world, "first", "first")
    while not await fits(world, service, second, node):
        pass
    return node, second, backup


@pytest.mark.parametrize("bump", [0, 1_000_000], ids=["older versions", "versions bumped"])
async def test_a_device_that_a_bound_pod_has_again_after_a_restore_goes_to_nobody_else(
    world: World, service: Service, bump: int
) -> None:
    """The service knew that the first pod's claim was free, ignored the older version, and gave all its devices to
    the second pod: two bound pods with gpu-0, the replica Ready, and no problem reported.
    """
    node, second, backup = await backed_up(world, service)

    restore(world.api, backup, bump=bump)
    await until(lambda: service.replica.set_backs == 1)
    await until_ready(service)
    assert not await fits(world, service, second, node)
    assert await world.bind(service, second, node) != ""
    assert users(world) == {device: ["first"] for device in users(world)}

    _, problems = await world.get(service.url + "/insight/problems")
    assert [problem["kind"] for problem in problems["problems"]] == ["server"]
    _, text = await world.get(service.url + "/metrics")
    assert "dra_extender_set_backs_total 1.0" in text
    end(world, "first", "first")
    while not await fits(world, service, second, node):
        pass
    assert await world.bind(service, second, node) == ""


async def test_a_bind_under_way_during_a_restore_gives_nothing_twice(world: World, service: Service) -> None:
    """Its claim was written before; in the restored state another pod has the devices."""
    node, second, backup = await backed_up(world, service)
    held = RequestFault(resource="pods/binding", until=asyncio.Event(), times=1)
    world.api.faults.add(held)
    binding = asyncio.create_task(world.bind(service, second, node))
    await until(lambda: held.hits == 1)
    restore(world.api, backup)
    assert await binding != ""
    await until_ready(service)
    assert users(world) == {device: ["first"] for device in users(world)}
    assert held.until is not None
    held.until.set()
    assert users(world) == {device: ["first"] for device in users(world)}


async def test_a_leader_that_has_to_list_everything_again_gives_the_lease_back_at_once(
    world: World, start_service: StartService
) -> None:
    """It kept the lease until it had listed everything, or until the lease expired."""
    async with start_service(identity="one", **ELECTION) as service:
        await until(service.replica.leads)
        backup = back_up(world.api)
        world.claim("later")
        await until(lambda: service.replica.running.cluster.ledger.get("default", "later") is not None)
        go_on = asyncio.Event()
        world.api.faults.add(RequestFault(verb="list", resource="resourceslices", until=go_on))
        restore(world.api, backup)
        await until(lambda: service.replica.set_backs == 1)
        await until(lambda: leader(world) == "")
        assert not service.replica.leading
        go_on.set()
        await until_ready(service)
        assert leader(world) == "one"


async def test_a_replica_that_leaves_does_not_take_the_lease_again(world: World, start_service: StartService) -> None:
    async with start_service(identity="one", **ELECTION) as service:
        await until(service.replica.leads)
        backup = back_up(world.api)
        world.claim("later")
        await until(lambda: service.replica.running.cluster.ledger.get("default", "later") is not None)
        service.replica.leaving = True
        try:
            restore(world.api, backup)
            await until(lambda: service.replica.set_backs == 1 and service.replica.could_lead())
            assert (leader(world), service.replica.election) == ("", None)
        finally:
            service.replica.leaving = False  # it can be stopped


async def test_nothing_refers_to_an_ended_engine_when_what_it_left_is_freed(
    world: World, start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, left = list[ref[Cluster]](), list[int]()

    def let_go(_: ProcessMemory) -> None:
        gc.collect()
        left.append(sum(each() is not None for each in ended))

    monkeypatch.setattr(ProcessMemory, "let_go", let_go)
    async with start_service(identity="one", **ELECTION) as service:
        await until_ready(service)
        ended.append(ref(service.replica.running.cluster))
        backup = back_up(world.api)
        world.claim("later")
        await until(lambda: service.replica.running.cluster.ledger.get("default", "later") is not None)
        restore(world.api, backup)
        await until(lambda: service.replica.set_backs == 1)
        await until_ready(service)
        assert left == [0, 0]
