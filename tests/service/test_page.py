"""The page and its feed, of a running service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from functools import partial
from typing import Any

import aiohttp
import pytest

from dra_extender.http.page import routes, updates
from dra_extender.http.page.routes import HEADERS, page_files
from dra_extender.http.protocol import ConnectionLimits
from dra_extender.service.service import Service
from tests.support.patience import until
from tests.support.service.events import listening
from tests.support.service.world import StartService, World


async def get(service: Service, path: str, **headers: str) -> tuple[int, Any, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(service.insight_url + path, headers=headers) as reply,
    ):
        return reply.status, reply.headers, await reply.read()


# --- files


async def test_every_file_comes_with_a_policy_and_its_type(service: Service) -> None:
    for path, file in page_files().items():
        status, headers, content = await get(service, path)
        assert (status, headers["Content-Type"], content) == (200, file.media_type, file.body)
        assert {name: headers[name] for name in HEADERS} == HEADERS


async def test_a_file_that_a_browser_has_is_not_sent_again(service: Service) -> None:
    _, headers, _ = await get(service, "/page/main.js")
    status, again, content = await get(service, "/page/main.js", **{"If-None-Match": headers["ETag"]})
    assert (status, content, again["ETag"]) == (304, b"", headers["ETag"])


async def test_files_are_open_and_what_is_in_the_cluster_is_not(start_service: StartService) -> None:
    for separate in ("", "127.0.0.1:0"):
        async with start_service(insight_authorization=True, insight_listen=separate) as service:
            assert {(await get(service, path))[0] for path in page_files()} == {200}
            for path in ("/insight/events", "/insight/device?driver=a&pool=b&device=c", "/page/", "/page/other.js"):
                assert (await get(service, path))[0] == 401
            assert service.page.devices is None


# --- the feed


async def test_a_reader_hears_of_everything_and_then_of_what_changes(world: World, service: Service) -> None:
    async with listening(service) as events:
        await events.whole()
        assert events.hello["resumed"] is False
        devices = events.devices()
        assert (len(devices), set(devices.values())) == (6, {"free"})
        assert events.parts["nodes"]["count"] == 3
        pod = world.pod("p", "c")
        world.claim("c")
        await until(lambda: service.replica.view.ledger.get("default", "c"))
        assert await world.bind(service, pod, world.nodes[0]) == ""
        heard = len(events.messages)
        await events.until(lambda: "used" in events.devices().values())
        told = [part for message in events.messages[heard:] for part in message["put"] if part["kind"] == "devices"]
        assert {part["node"] for part in told} == {world.nodes[0]}, "other nodes have not changed"
        assert [row[6] for part in told for row in part["devices"] if row[1] == "used"][-1] == ["default/c"]


async def test_a_pod_that_waits_is_told_until_it_is_gone(world: World, service: Service) -> None:
    async with listening(service) as events:
        await events.whole()
        world.claim("c", count=3)
        uid = world.pod("p", "c")["metadata"]["uid"]
        await events.until(lambda: f"pod\n{uid}" in events.parts)
        pod = events.parts[f"pod\n{uid}"]
        assert (pod["namespace"], pod["name"]) == ("default", "p")
        world.store.delete("pods", "p", "default")
        await events.until(lambda: f"pod\n{uid}" not in events.parts)


async def test_equal_pods_are_told_once_with_their_number(world: World, service: Service) -> None:
    """The pod that stands for the others does so until it is gone."""
    world.claim("c", count=3)
    uids = {name: world.pod(name, "c")["metadata"]["uid"] for name in ("p0", "p1", "p2")}
    world.claim("d", count=3)
    world.pod("other", "d")

    def rows() -> list[dict[str, Any]]:
        return [part for part in events.parts.values() if part["kind"] == "pod"]

    def told() -> list[tuple[int, list[str]]]:
        return sorted((part["count"], sorted([part["name"], *part["others"]])) for part in rows())

    def representatives() -> list[str]:
        return sorted(part["uid"] for part in rows())

    async with listening(service) as events:
        await events.until(lambda: told() == [(1, ["other"]), (3, ["p0", "p1", "p2"])])
        before = representatives()
        gone = next(name for name, uid in uids.items() if uid not in before)
        world.store.delete("pods", gone, "default")
        await events.until(lambda: [count for count, _ in told()] == [1, 2])
        assert representatives() == before


async def test_taints_of_nodes_are_told(world: World, service: Service) -> None:
    async with listening(service) as events:
        await events.whole()
        name = world.nodes[0]
        node = world.store.get("nodes", name)
        assert node is not None
        taints = [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]
        world.store.update(node | {"spec": {"unschedulable": True, "taints": taints}})
        await events.until(lambda: f"node\n{name}" in events.parts)
        told = events.parts[f"node\n{name}"]
        assert (told["cordoned"], told["taints"]) == (True, ["dedicated=ml:NoSchedule"])
        node = world.store.get("nodes", name)
        assert node is not None
        world.store.update(node | {"spec": {}})
        await events.until(lambda: f"node\n{name}" not in events.parts)


async def test_device_classes_are_told(world: World, service: Service) -> None:
    async with listening(service) as events:
        await events.until(lambda: events.parts.get("nodes", {}).get("classes") == ["gpu.example.com"])


async def test_before_the_cluster_is_known_readers_are_told_why(world: World, start_service: StartService) -> None:
    world.api.access.policy = lambda attributes: attributes.resource != "nodes"
    async with start_service(wait=False) as service, listening(service) as events:
        await events.until(lambda: events.parts.get("status", {}).get("unknown"))
        assert events.devices() == {}


async def test_who_comes_back_hears_only_of_what_has_changed(world: World, service: Service) -> None:
    async with listening(service) as events:
        await events.whole()
        known = events.id
    world.claim("c")
    pod = world.pod("p", "c")
    await until(lambda: service.replica.view.ledger.get("default", "c"))
    assert await world.bind(service, pod, world.nodes[1]) == ""
    async with listening(service, known) as again:
        await again.until(lambda: again.devices())
        assert again.hello["resumed"] is True
        nodes = {part["node"] for part in again.parts.values() if part["kind"] == "devices"}
        assert nodes == {world.nodes[1]}


@pytest.mark.parametrize("unknown", ["", "nonsense", "0123456789abcdef-3", "-", "a-99999999999999999999"])
async def test_who_knows_nothing_of_this_feed_hears_of_everything(service: Service, unknown: str) -> None:
    async with listening(service, unknown) as events:
        await events.whole()
        assert (events.hello["resumed"], len(events.devices())) == (False, 6)


async def test_nothing_is_counted_while_nobody_looks(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "LINGER", 0.0)

    def is_counting() -> bool:
        return service.page.devices is not None

    assert not is_counting()
    async with listening(service) as events:
        await events.whole()
        assert is_counting()
    await until(lambda: not is_counting())
    assert service.page.state.keys("") == []


async def test_all_readers_share_one_census(service: Service) -> None:
    async with listening(service) as first, listening(service) as second:
        await first.whole()
        await second.whole()
        assert first.devices() == second.devices()
        assert service.page.devices is not None
        assert service.page.devices.counted == 3


async def test_of_too_many_readers_the_last_ones_are_told_to_come_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_SUBSCRIBERS", 1)
    async with listening(service) as events:
        await events.whole()
        status, headers, _ = await get(service, "/insight/events")
        assert (status, headers["Retry-After"]) == (503, "10")


async def test_a_stream_ends_after_a_while_so_that_its_reader_is_judged_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LIFE", 0.5)
    async with listening(service) as events:
        while await events.hear():
            pass
    assert events.devices()


async def test_heartbeats_come_when_nothing_happens(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BEAT", 0.01)
    async with listening(service) as events:
        await events.whole()
        heard = [await events.reply.content.readuntil(b"\n\n") for _ in range(20)]
    assert b": still here\n\n" in heard


async def rest(connection: socket.socket) -> bytes:
    """What comes before the other end closes the connection, in order or not."""
    connection.setblocking(False)
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while chunk := await asyncio.get_running_loop().sock_recv(connection, 2**16):
            received += chunk
    return bytes(received)


async def test_who_takes_nothing_is_cut_off(start_service: StartService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.service.service.ConnectionLimits", partial(ConnectionLimits, taking_seconds=0.2))
    async with start_service() as service:
        address = service.insight_url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1]))) as silent:
            silent.sendall(b"GET /insight/events HTTP/1.1\r\nHost: here\r\n\r\n")
            await until(lambda: service.page.state.subscribers == 1)
            for number in range(2_000):
                part = b'{"key":"large","kind":"large","filler":"%b"}' % (b"x" * 10_000)
                service.page.state.put(f"large {number}", part)
            service.page.state.publish()
            await until(lambda: service.page.state.subscribers == 0, "the end of the silent reader")
            received = await rest(silent)
    assert 0 < len(received) < 2_000 * 10_000, "all that fits into buffers, and no more"


async def test_a_service_that_stops_ends_its_streams(start_service: StartService) -> None:
    async with start_service(shutdown_grace=60.0) as service:
        async with listening(service) as events:
            await events.whole()
            stopping = asyncio.create_task(service.stop())
            while await events.hear():
                pass
        await stopping
    assert service.page.state.subscribers == 0


# --- details


async def test_details_of_a_device_have_what_is_published_of_it(world: World, service: Service) -> None:
    node = world.nodes[0]
    status, _, content = await get(service, f"/insight/device?driver=gpu.example.com&pool={node}&device=gpu-0")
    found: dict[str, Any] = json.loads(content)
    assert status == 200
    assert (found["device"]["state"], found["nodes"]) == ("free", f"node {node}")
    assert found["attributes"]["model"] == "LATEST-GPU-MODEL"
    assert "memory" in found["capacity"]


async def test_a_device_that_is_not_there_has_no_details(service: Service) -> None:
    status, _, content = await get(service, "/insight/device?driver=gpu.example.com&pool=none&device=gpu-0")
    assert (status, content) == (404, b'{"detail":"device gpu.example.com/none/gpu-0 not found"}')
