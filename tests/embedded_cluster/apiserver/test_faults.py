"""Injected faults: who is hit, when, and whether the request took effect."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from embedded_cluster.apiserver import EmbeddedAPIServer, Faults, RequestFault
from embedded_cluster.apiserver.requests import RequestInfo
from tests.support.embedded.client import CONFIG_MAPS, PODS, Client, config_map, pod
from tests.support.patience import until


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
    ],
)
async def test_a_status_is_answered_instead_of_the_request(client: Client, status: int, reason: str) -> None:
    client.server.faults.add(RequestFault(verb="create", status=status))
    code, answer = await client.request("POST", CONFIG_MAPS, config_map("a"))
    assert (code, answer["reason"]) == (status, reason)
    assert client.server.store.get("configmaps", "a", "default") is None


async def test_a_status_after_the_commit_leaves_the_object(client: Client) -> None:
    client.server.faults.add(RequestFault(verb="create", status=500, after=True))
    code, _ = await client.request("POST", CONFIG_MAPS, config_map("a"))
    assert code == 500
    assert client.server.store.get("configmaps", "a", "default") is not None


@pytest.mark.parametrize("after", [False, True])
async def test_a_broken_connection_leaves_the_outcome_open(client: Client, after: bool) -> None:
    client.server.faults.add(RequestFault(verb="create", drop=True, after=after, times=1))
    with pytest.raises(aiohttp.ClientError):
        await client.request("POST", CONFIG_MAPS, config_map("a"))
    assert (client.server.store.get("configmaps", "a", "default") is not None) == after
    assert client.server.audit.find("create", "configmaps")[0].code == 0


@pytest.mark.parametrize("after", [False, True])
async def test_a_request_that_takes_too_long_has_or_has_not_taken_effect(client: Client, after: bool) -> None:
    fault = client.server.faults.add(RequestFault(verb="create", until=asyncio.Event(), after=after))
    request = asyncio.create_task(client.request("POST", CONFIG_MAPS, config_map("a")))
    await until(lambda: fault.hits)
    request.cancel()
    assert (client.server.store.get("configmaps", "a", "default") is not None) == after


async def test_a_fault_hits_as_often_as_it_says_and_counts(client: Client) -> None:
    fault = client.server.faults.add(RequestFault(verb="list", resource="configmaps", status=500, times=2, skip=1))
    codes = [(await client.request("GET", CONFIG_MAPS))[0] for _ in range(5)]
    assert (codes, fault.hits) == ([200, 500, 500, 200, 200], 2)


@pytest.mark.parametrize(
    ("fault", "hit"),
    [
        (RequestFault(), True),
        (RequestFault(verb="patch"), True),
        (RequestFault(verb="get"), False),
        (RequestFault(resource="resourceclaims/status"), True),
        (RequestFault(resource="resourceclaims"), False),
        (RequestFault(resource="resource*"), True),
        (RequestFault(name="c1"), True),
        (RequestFault(name="c2"), False),
        (RequestFault(user_agent="kubectl*"), True),
        (RequestFault(user_agent="other*"), False),
        (RequestFault(probability=0.0), False),
    ],
)
def test_patterns_choose_requests(fault: RequestFault, hit: bool) -> None:
    fault.status = 500
    faults = Faults()
    faults.add(fault)
    info = RequestInfo("patch", "resource.k8s.io", "v1", "resourceclaims", "default", "c1", "status")
    assert (faults.judge(info, "kubectl/v1")[0].problem is not None) == hit


def test_the_same_seed_hits_the_same_requests() -> None:
    info = RequestInfo("get", "", "v1", "pods", "default", "p", "")

    def hits(seed: int) -> list[bool]:
        faults = Faults(seed)
        faults.add(RequestFault(probability=0.5, status=500))
        return [faults.judge(info, "")[0].problem is not None for _ in range(50)]

    assert hits(3) == hits(3)
    assert hits(3) != hits(4)


async def test_removed_faults_hit_nobody(client: Client) -> None:
    fault = client.server.faults.add(RequestFault(status=500))
    client.server.faults.remove(fault)
    client.server.faults.add(RequestFault(status=503))
    client.server.faults.clear()
    assert (await client.get(CONFIG_MAPS))["items"] == []


async def test_cut_watches_break_in_the_middle(client: Client) -> None:
    async with client.watch(CONFIG_MAPS) as watch:
        assert client.server.faults.cut_watches("pods") == 0
        assert client.server.faults.cut_watches("configmaps") == 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.next()


async def test_expired_watches_end_with_410(client: Client) -> None:
    async with client.watch(CONFIG_MAPS) as watch:
        assert client.server.faults.expire_watches() == 1
        event = await watch.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        with pytest.raises(EOFError):
            await watch.next()


async def test_events_can_come_twice(client: Client) -> None:
    client.server.faults.repeat_events(1.0, "configmaps")
    async with client.watch(CONFIG_MAPS) as watch:
        await client.post(CONFIG_MAPS, config_map("a"))
        await client.post(CONFIG_MAPS, config_map("b"))
        assert await watch.told(4) == [("ADDED", "a"), ("ADDED", "a"), ("ADDED", "b"), ("ADDED", "b")]


async def test_watches_bring_any_line_they_are_told_to(client: Client) -> None:
    async with client.watch(PODS) as watch:
        await client.post(PODS, pod("a"))
        assert await watch.told(1) == [("ADDED", "a")]
        assert client.server.faults.tell_watches(b'{"type":"ODD","object":{"metadata":{}}}\n', "pods") == 1
        assert client.server.faults.tell_watches(b"7\n", "configmaps") == 0
        assert await watch.told(1) == [("ODD", "")]


async def test_lagging_watches_deliver_everything_in_order(client: Client) -> None:
    client.server.faults.lag(0.05, "pods")
    async with client.watch(PODS) as watch:
        for name in "abc":
            await client.post(PODS, pod(name))
        assert await watch.told(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_lagging_watch_hears_later_than_the_answer(client: Client) -> None:
    client.server.faults.lag(30, "pods")
    async with client.watch(PODS) as watch, client.watch(CONFIG_MAPS) as other:
        await client.post(PODS, pod("late"))
        await client.post(CONFIG_MAPS, config_map("prompt"))
        assert await other.told(1) == [("ADDED", "prompt")]
        assert not client.server.faults.lag_of("configmaps")
        assert not watch._response.content.total_raw_bytes


async def test_faults_of_one_server_leave_others_alone(client: Client) -> None:
    client.server.faults.add(RequestFault(status=500))
    async with EmbeddedAPIServer() as other:
        assert (await Client(other, client.session).get(CONFIG_MAPS))["items"] == []
