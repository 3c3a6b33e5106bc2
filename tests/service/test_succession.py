"""Ends and beginnings: a service that is killed or stops, and the service that replaces it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from dra_extender.scheduling.nomination.controller import PreemptionController
from dra_extender.service.service import Service
from embedded_cluster import RequestFault
from embedded_cluster.hardware import node
from tests.support.patience import LONGEST, until
from tests.support.service.readiness import until_ready
from tests.support.service.world import ELECTION, NODES, StartService, World, leader, serve


async def test_a_killed_service_leaves_everything_to_its_successor(world: World, start_service: StartService) -> None:
    world.claim("c", count=2)
    pod = world.pod("p", "c")
    first = serve(world.api.url)
    await first.start()
    await until_ready(first)
    assert await world.bind(first, pod, world.nodes[0]) == ""
    await first.kill()
    with pytest.raises(aiohttp.ClientConnectionError):
        await world.filter(first, pod)
    world.claim("d", count=2)
    async with start_service() as second:
        answer = await world.filter(second, world.pod("q", "d"))
        assert answer["NodeNames"] == world.nodes[1:]
        assert await world.bind(second, pod, world.nodes[0]) == ""


async def test_a_service_killed_in_the_middle_of_a_bind_is_succeeded_by_one_that_finishes_it(
    world: World, start_service: StartService
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    first = serve(world.api.url)
    await first.start()
    await until_ready(first)
    slow = world.api.faults.add(RequestFault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1))
    call = asyncio.create_task(world.bind(first, pod, world.nodes[0]))
    await until(lambda: slow.hits)
    await first.kill()
    await asyncio.gather(call, return_exceptions=True)
    async with start_service() as second:
        assert (await world.filter(second, pod))["NodeNames"] == [world.nodes[0]]
        assert await world.bind(second, pod, world.nodes[0]) == ""
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]
    assert len(world.stored("resourceclaims", "c")["status"]["reservedFor"]) == 1


async def test_stopping_lets_a_running_bind_finish(world: World, start_service: StartService) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    async with start_service(shutdown_grace=LONGEST) as service:
        finish = asyncio.Event()
        slow = world.api.faults.add(RequestFault(verb="create", resource="pods/binding", until=finish, times=1))
        call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        stopping = asyncio.create_task(service.stop())
        await until(lambda: service.replica.unavailable() == "shutting down")
        finish.set()
        await stopping
        assert await call == ""
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]


async def test_requests_and_binds_that_do_not_end_share_one_grace_period(
    world: World, start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    drained: list[float] = []
    async with start_service(shutdown_grace=1.0) as service:
        drain = service.replica.running.drain

        async def recorded(seconds: float) -> None:
            drained.append(seconds)
            await drain(seconds)

        monkeypatch.setattr(service.replica.running, "drain", recorded)
        slow = world.api.faults.add(
            RequestFault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1)
        )
        call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        await service.stop()
        await asyncio.gather(call, return_exceptions=True)
    assert drained[0] == 0.0


FORWARDING = ELECTION | {"advertise": "127.0.0.1", "shutdown_grace": LONGEST}


async def test_a_standby_that_cannot_forward_refuses_calls_and_is_not_ready_until_a_stopping_leader_hands_over(
    world: World, start_service: StartService
) -> None:
    async with (
        start_service(identity="one", **ELECTION) as first,
        start_service(identity="two", wait=False, **ELECTION) as second,
    ):
        await until(lambda: second.replica.unavailable() == "standby: one leads")
        assert (await world.get(second.url + "/readyz"))[0] == 503
        async with (
            aiohttp.ClientSession() as session,
            session.post(second.url + "/scheduler/bind", json={}) as reply,
        ):
            assert (reply.status, reply.headers["Connection"]) == (503, "close")
        await first.stop()
        await until_ready(second)
        assert leader(world) == "two"


async def test_a_new_leader_decides_nothing_until_it_has_restored_the_nominations(
    world: World, start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of low priority got the device for which another pod had preempted."""
    known, restore = asyncio.Event(), PreemptionController.restore

    async def waiting(controller: PreemptionController) -> None:
        await known.wait()
        await restore(controller)

    monkeypatch.setattr(PreemptionController, "restore", waiting)
    world.claim("c")
    pod = world.pod("p", "c")
    async with start_service(identity="one", preemption="on", **ELECTION) as service:
        await until(service.replica.leads)
        filtering = asyncio.create_task(world.filter(service, pod))
        assert "a new leader restores the nominations" in await world.bind(service, pod, world.nodes[0])
        assert "a new leader restores the nominations" in (await filtering)["Error"]
        filtering = asyncio.create_task(world.filter(service, pod))
        known.set()
        assert (await filtering)["NodeNames"] == world.nodes


async def test_a_standby_that_forwards_is_ready_and_the_leader_decides(
    world: World, start_service: StartService
) -> None:
    world.claim("c", count=2)
    pod = world.pod("p", "c")
    async with (
        start_service(identity="one", **FORWARDING) as first,
        start_service(identity="two", **FORWARDING) as second,
    ):
        await until(lambda: first.replica.leads() and second.replica.leader() != "")
        status, report = await world.get(second.url + "/readyz")
        assert (status, report["checks"][1]) == (200, {"name": "leader", "ok": True, "problem": "one leads"})
        assert (first.replica.leads(), second.replica.leads()) == (True, False)
        assert (await world.filter(second, pod))["NodeNames"] == world.nodes
        assert await world.bind(second, pod, world.nodes[0]) == ""
        assert [await bound(world, service) for service in (first, second)] == [1, 0]


async def bound(world: World, service: Service) -> int:
    """How many pods a replica has bound by itself."""
    _, text = await world.get(service.url + "/metrics")
    lines = (line for line in text.splitlines() if line.startswith('dra_extender_bind_results_total{result="bound"}'))
    return int(float(next(lines).rpartition(" ")[2]))


async def test_no_call_is_refused_while_the_leader_stops_wherever_it_goes(
    world: World, start_service: StartService
) -> None:
    async with (
        start_service(identity="one", **FORWARDING, shutdown_linger=LONGEST / 2) as first,
        start_service(identity="two", **FORWARDING) as second,
    ):
        stopping = asyncio.create_task(first.stop())
        await until(lambda: first.replica.leaving)
        assert (await world.get(first.url + "/readyz"))[0] == 503
        for number, service in enumerate([first, second, first, second, first, second]):
            world.claim(f"c{number}")
            pod = world.pod(f"p{number}", f"c{number}")
            (first_node, *_) = (await world.filter(service, pod))["NodeNames"]
            assert await world.bind(service, pod, first_node) == ""
        assert (leader(world), second.replica.leads()) == ("two", True)
        assert await bound(world, second) > 0
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await first.kill()


async def test_without_election_a_stopping_replica_decides_as_long_as_calls_may_come(
    world: World, start_service: StartService
) -> None:
    async with start_service(shutdown_linger=LONGEST / 2, shutdown_grace=LONGEST) as alone:
        stopping = asyncio.create_task(alone.stop())
        await until(lambda: alone.replica.leaving)
        world.claim("c")
        assert await world.bind(alone, world.pod("p", "c"), world.nodes[0]) == ""
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await alone.kill()


async def test_a_bind_that_takes_long_goes_on_when_the_lease_is_handed_over(
    world: World, start_service: StartService
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    async with (
        start_service(identity="one", **FORWARDING) as first,
        start_service(identity="two", **FORWARDING) as second,
    ):
        go_on = asyncio.Event()
        slow = world.api.faults.add(RequestFault(verb="patch", resource="resourceclaims", until=go_on, times=1))
        call = asyncio.create_task(world.bind(first, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        stopping = asyncio.create_task(first.stop())
        await until(second.replica.leads)
        go_on.set()
        assert await call == ""
        await stopping
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]


async def test_a_replica_that_has_just_started_leaves_the_lease_to_those_that_know_the_cluster(
    world: World, start_service: StartService
) -> None:
    go_on = asyncio.Event()
    slow = world.api.faults.add(RequestFault(verb="list", resource="resourceslices", until=go_on, times=1))
    async with start_service(identity="new", wait=False, **FORWARDING) as late:
        await until(lambda: slow.hits)
        async with start_service(identity="old", **FORWARDING) as known:
            await until(known.replica.leads)
            go_on.set()
            await until_ready(late)
            assert leader(world) == "old"


async def test_a_standby_looks_at_what_has_changed_so_that_it_could_lead_at_any_time(
    world: World, start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_extender.service.engine._WARM_PERIOD", 0.01)
    async with start_service(identity="one", **FORWARDING), start_service(identity="two", **FORWARDING) as second:
        nodes = second.replica.running.cluster.inventory.nodes
        world.store.create(node(NODES))
        name = str(node(NODES)["metadata"]["name"])
        await until(lambda: name in nodes)
        await until(lambda: nodes.is_current(nodes.seen[name]))
        assert not second.replica.leads()
