"""Events: counted, bounded, and never in the way."""

from __future__ import annotations

import asyncio
import re
import sys

import msgspec
import pytest
from aiohttp import web

from dra_extender.api.core import ObjectReference
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import Event, EventRecorder
from tests.support.kube.scripted import ScriptedServer
from tests.support.marked import MARK, is_harmless

COLLECTION = "/apis/events.k8s.io/v1/namespaces/default/events"
POD = ObjectReference(kind="Pod", namespace="default", name="p", uid="u", api_version="v1")
TOLD = Event(regarding=POD, reason="DevicesAllocated", action="Bind", note="gpu-0 on n1")


def accept(server: ScriptedServer) -> None:
    server.on("POST", COLLECTION, (201, {}))


async def test_an_event_names_object_reason_and_reporter(server: ScriptedServer, client: KubeClient) -> None:
    accept(server)
    await EventRecorder(client, "replica-1").send(TOLD)
    body = server.asked[0].json
    assert (body["apiVersion"], body["kind"]) == ("events.k8s.io/v1", "Event")
    assert body["regarding"] == {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u", "apiVersion": "v1"}
    assert (body["reason"], body["action"], body["note"], body["type"]) == (
        "DevicesAllocated",
        "Bind",
        "gpu-0 on n1",
        "Normal",
    )
    assert (body["reportingController"], body["reportingInstance"]) == ("dra-extender", "replica-1")
    assert body["eventTime"].endswith("Z")


@pytest.mark.parametrize("end", [".", "-", "-.-"])
async def test_the_name_of_an_event_about_a_long_name_is_valid(
    server: ScriptedServer, client: KubeClient, end: str
) -> None:
    accept(server)
    long = msgspec.structs.replace(TOLD.regarding, name="x" * (180 - len(end)) + end + "tail")
    await EventRecorder(client, "replica-1").send(msgspec.structs.replace(TOLD, regarding=long))
    assert re.fullmatch(r"x+\.[0-9a-f]+", server.asked[0].json["metadata"]["name"])


async def test_a_note_is_text(server: ScriptedServer, client: KubeClient) -> None:
    accept(server)
    for note in (f"claim {MARK}", MARK * 100):
        await EventRecorder(client, "i").send(msgspec.structs.replace(TOLD, note=note))
    notes = [asked.json["note"] for asked in server.asked]
    assert all(map(is_harmless, notes))
    assert all("\n" not in note and len(note.encode()) <= 1024 for note in notes)


async def test_of_a_note_no_more_is_kept_than_is_sent(server: ScriptedServer, client: KubeClient) -> None:
    accept(server)
    recorder = EventRecorder(client, "i")
    recorder.record(Event(regarding=POD, reason="R", action="A", note="n" * 100_000))
    assert sys.getsizeof(recorder._queue.take().note) < 4_096
    await recorder.send(Event(regarding=POD, reason="R", action="A", note="n" * 100_000))
    assert all(sys.getsizeof(part) < 4_096 for key in recorder._written for part in key)


async def test_the_same_event_again_is_counted_on_the_first(server: ScriptedServer, client: KubeClient) -> None:
    accept(server)
    recorder = EventRecorder(client, "i")
    await recorder.send(TOLD)
    name = server.asked[0].json["metadata"]["name"]
    server.on("PATCH", f"{COLLECTION}/{name}", (200, {}))
    await recorder.send(TOLD)
    await recorder.send(TOLD)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "PATCH"]
    assert [asked.json["series"]["count"] for asked in server.asked[1:]] == [2, 3]


async def test_an_event_whose_first_has_expired_is_created_anew(server: ScriptedServer, client: KubeClient) -> None:
    accept(server)
    recorder = EventRecorder(client, "i")
    await recorder.send(TOLD)
    await recorder.send(TOLD)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "POST"]
    assert recorder.sent == 2


async def test_an_event_long_after_the_first_is_a_new_one(server: ScriptedServer, client: KubeClient) -> None:
    accept(server)
    now = 0.0
    recorder = EventRecorder(client, "i", clock=lambda: now)
    await recorder.send(TOLD)
    now = 400.0
    await recorder.send(TOLD)
    assert [asked.method for asked in server.asked] == ["POST", "POST"]


async def test_a_refused_event_is_dropped_and_counted(server: ScriptedServer, client: KubeClient) -> None:
    server.on("POST", COLLECTION, (403, {"reason": "Forbidden"}))
    recorder = EventRecorder(client, "i")
    await recorder.send(TOLD)
    assert (recorder.dropped, recorder.sent) == (1, 0)


async def test_what_does_not_fit_the_queue_is_dropped_without_waiting(client: KubeClient) -> None:
    recorder = EventRecorder(client, "i", size=2)
    for _ in range(5):
        recorder.record(TOLD)
    assert (len(recorder._queue), recorder.dropped) == (2, 3)


async def test_events_of_a_namespace_do_not_wait_for_those_of_another_and_are_not_dropped_for_them(
    server: ScriptedServer, client: KubeClient
) -> None:
    recorder, told = EventRecorder(client, "i", size=50), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if len(server.asked) >= 2:
            told.set()
        return web.json_response({}, status=201)

    for namespace in ("a", "b"):
        server.on("POST", COLLECTION.replace("default", namespace), answer)
    for name in (*(f"a-{number}" for number in range(400)), "b-0"):
        regarding = ObjectReference(kind="Pod", namespace=name[0], name=name)
        recorder.record(Event(regarding=regarding, reason="R", action="A", note="n"))
    assert (len(recorder._queue), recorder.dropped) == (50, 351)
    sending = asyncio.create_task(recorder.run())
    await told.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert [asked.json["metadata"]["namespace"] for asked in server.asked[:2]] == ["a", "b"]


async def test_a_note_longer_than_the_api_allows_is_cut_between_characters(
    server: ScriptedServer, client: KubeClient
) -> None:
    accept(server)
    long = Event(regarding=POD, reason="R", action="A", note="ü" * 2000)
    await EventRecorder(client, "i").send(long)
    note = server.asked[0].json["note"]
    assert len(note.encode()) <= 1024
    assert note.endswith("ü…")


async def test_an_event_about_a_cluster_wide_object_goes_to_the_default_namespace(
    server: ScriptedServer, client: KubeClient
) -> None:
    accept(server)
    node = ObjectReference(kind="Node", name="n1")
    await EventRecorder(client, "i").send(Event(regarding=node, reason="R", action="A", note="n"))
    assert server.asked[0].json["metadata"]["namespace"] == "default"
