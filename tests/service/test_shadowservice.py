"""A service in shadow mode: it reports on the bindings of another scheduler, and writes nothing but its lease."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from dra_extender.insight.shadow import RULES
from dra_extender.service.service import Service
from tests.support.patience import LONGEST, until
from tests.support.service.readiness import until_ready
from tests.support.service.world import ELECTION, StartService, World


async def ask(world: World, service: Service) -> tuple[int, Any]:
    return await world.get(f"{service.insight_url}/insight/shadow")


async def recorded(world: World, service: Service, pods: int) -> dict[str, int]:
    """Wait until this number of pods is recorded; the pods by rule."""
    engine = service.replica.running
    await until(lambda: bool(engine.shadow and engine.shadow.found.since and not engine.shadow.found.behind))
    status, found = await ask(world, service)
    async with asyncio.timeout(LONGEST):
        while found["pods"] != pods:
            status, found = await ask(world, service)
    assert status == 200
    return {each["rule"]: each["pods"] for each in found["rules"] if each["pods"]}


async def bind(world: World, name: str, node: str) -> None:
    """As another scheduler does it."""
    world.allocate(name, name, node)
    target = {"target": {"kind": "Node", "name": node}, "metadata": {"name": name}}
    url = f"{world.api.url}/api/v1/namespaces/default/pods/{name}/binding"
    async with aiohttp.ClientSession() as session, session.post(url, json=target) as reply:
        assert reply.status == 201, await reply.text()


async def test_bindings_are_recorded_and_nothing_is_written_but_the_lease(
    world: World, start_service: StartService
) -> None:
    async with start_service(mode="shadow", placement="pack", **ELECTION) as service:
        await recorded(world, service, 0)
        for name in "pq":
            world.claim(name)
            world.pod(name, name)
        first, second = world.nodes[:2]
        await bind(world, "p", first)
        await bind(world, "q", second)
        assert await recorded(world, service, 2) == {"same": 1, "other node": 1}
        found = (await ask(world, service))[1]
        assert (found["now"]["nodes"], found["packed"]["nodes"], found["policy"]) == (2, 1, "pack")
        assert (await world.get(f"{service.insight_url}/metrics"))[1].count("dra_extender_shadow_pods_total{") == len(
            RULES
        )
    assert world.store.list("events") == []
    assert {each["metadata"]["name"] for each in world.store.list("leases")} == {"dra-extender"}
    assert {each["metadata"]["name"] for each in world.store.list("resourceclaims")} == {"p", "q"}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_the_verbs_answer_that_nothing_is_decided(world: World, start_service: StartService, verb: str) -> None:
    async with (
        start_service(mode="shadow") as service,
        aiohttp.ClientSession() as session,
        session.post(f"{service.url}/scheduler/{verb}", json={}) as reply,
    ):
        assert reply.status == 503
        assert "shadow mode: this service decides nothing" in await reply.text()


async def test_a_standby_says_who_has_the_record(world: World, start_service: StartService) -> None:
    settings = ELECTION | {"mode": "shadow", "advertise": "127.0.0.1"}
    async with start_service(**settings, identity="first") as first:
        await recorded(world, first, 0)
        async with start_service(**settings, identity="second") as second:
            await until_ready(second)
            status, answer = await ask(world, second)
            assert (status, answer["detail"]) == (503, "dra-extender: standby: first leads")
            await first.stop()
            await recorded(world, second, 0)


async def test_a_service_that_serves_has_no_record(world: World, service: Service) -> None:
    status, answer = await ask(world, service)
    assert (status, answer["detail"]) == (503, "dra-extender: no record: start the service with --mode shadow")
