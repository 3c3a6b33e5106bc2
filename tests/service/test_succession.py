"""Ends and beginnings: a service that is killed or stops, and the one that goes on in its place."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from app.embedded import Fault
from tests.support.patience import LONGEST, until
from tests.support.service.world import StartService, World, serve


async def test_a_killed_service_leaves_everything_to_its_successor(world: World, start_service: StartService) -> None:
    world.claim("c", count=2)
    pod = world.pod("p", "c")
    first = serve(world.api.url)
    await first.start()
    await first.until_ready(LONGEST)
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
    await first.until_ready(LONGEST)
    slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1))
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
        slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=finish, times=1))
        call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        stopping = asyncio.create_task(service.stop())
        await until(lambda: service.gate.unavailable() == "shutting down")
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
        assert service.status.engine is not None
        drain = service.status.engine.drain

        async def recorded(seconds: float) -> None:
            drained.append(seconds)
            await drain(seconds)

        monkeypatch.setattr(service.status.engine, "drain", recorded)
        slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1))
        call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        await service.stop()
        await asyncio.gather(call, return_exceptions=True)
    assert drained[0] == 0.0


async def test_only_the_leader_decides_and_a_stopping_leader_hands_over(
    world: World, start_service: StartService
) -> None:
    election: dict[str, Any] = {
        "leader_election": True,
        "retry_period": 0.1,
        "renew_deadline": LONGEST,
        "lease_duration": LONGEST + 1,
    }
    async with (
        start_service(identity="one", **election) as first,
        start_service(identity="two", wait=False, **election) as second,
    ):
        await until(lambda: second.gate.unavailable() == "standby: one leads")
        assert (await world.get(second.url + "/readyz"))[0] == 503
        async with (
            aiohttp.ClientSession() as session,
            session.post(second.url + "/scheduler/bind", json={}) as reply,
        ):
            assert (reply.status, reply.headers["Connection"]) == (503, "close")
        await first.stop()
        await second.until_ready(LONGEST)
        assert world.stored("leases", "dra-extender", "dra-system")["spec"]["holderIdentity"] == "two"
