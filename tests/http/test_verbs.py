"""The verbs on the wire: exact keys, statuses and errors, for right and wrong requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from dra_extender.api.decoding import decode, encode
from dra_extender.api.extender import ExtenderArgs, ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult
from dra_extender.http import verbs
from dra_extender.http.authorization import AllowedClients
from tests.support.examples import examples
from tests.support.http.served import Served
from tests.support.patience import LONGEST
from tests.support.unexpected import Reports

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "creationTimestamp": None},
    "spec": {"containers": [{"name": "c", "image": "x", "resources": {}}], "nodeSelector": None},
    "status": {"phase": "Pending", "qosClass": "BestEffort"},
}
ARGS = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "bad"]}
PREEMPT = {
    "Pod": POD,
    "NodeNameToVictims": None,
    "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}},
}
BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n2"}


async def post(
    session: aiohttp.ClientSession, url: str, body: Any, **options: Any
) -> tuple[int, Any, aiohttp.ClientResponse]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(url, data=data, **options) as reply:
        return reply.status, json.loads(await reply.read()), reply


async def test_each_verb_answers_in_the_form_of_the_protocol(served: Served, session: aiohttp.ClientSession) -> None:
    refused = {"bad": "cannot allocate all claims"}
    filtered = {"NodeNames": ["n1"], "FailedNodes": {}, "FailedAndUnresolvableNodes": refused, "Error": ""}
    scores = [{"Host": "n1", "Score": 0}, {"Host": "bad", "Score": 1}]
    for path, body, want in (
        ("/scheduler/filter", ARGS, filtered),
        ("/scheduler/filter", ARGS | {"NodeNames": ["bad"]}, filtered | {"NodeNames": []}),
        ("/scheduler/prioritize", ARGS, scores),
        ("/advisor/prioritize", ARGS, scores),
        ("/scheduler/preempt", PREEMPT, {"NodeNameToMetaVictims": PREEMPT["NodeNameToMetaVictims"]}),
        ("/scheduler/bind", BIND, {"Error": ""}),
        ("/scheduler/bind", BIND | {"PodName": "unlucky"}, {"Error": "no such pod"}),
    ):
        status, found, reply = await post(session, served.url + path, body)
        assert (status, found) == (200, want)
        assert int(reply.headers["Content-Length"]) > 0
        assert "Transfer-Encoding" not in reply.headers
    assert served.verbs.asked[-2] == ExtenderBindingArgs("p", "default", "u", "n2")


WHOLE = {"Pod": POD, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}, "NodeNames": None}
THREE = ["n1", "n2", "n3"]
NO_VICTIMS = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": None}


def too_many(field: str) -> str:
    return f"dra-extender: the request has 3 nodes in {field}; at most 2 are allowed"


@pytest.mark.parametrize(
    ("verb", "body", "problem"),
    [
        pytest.param("filter", WHOLE | {"Nodes": None}, "nodeCacheCapable: true", id="neither nodes nor names"),
        pytest.param("prioritize", WHOLE, "nodeCacheCapable: true", id="whole nodes instead of names"),
        pytest.param("preempt", NO_VICTIMS, "no NodeNameToMetaVictims: set `nodeCacheCapable: true`", id="no victims"),
        ("filter", ARGS | {"NodeNames": THREE}, too_many("NodeNames")),
        ("filter", WHOLE | {"Nodes": {"items": [{}] * 3}}, too_many("Nodes")),
        ("prioritize", ARGS | {"NodeNames": THREE}, too_many("NodeNames")),
        (
            "preempt",
            NO_VICTIMS | {"NodeNameToMetaVictims": {name: {} for name in THREE}},
            too_many("NodeNameToMetaVictims"),
        ),
        ("preempt", NO_VICTIMS | {"Pods": [{}] * 40}, "objects; at most 40 are allowed"),
        ("filter", ARGS | {"Pods": [{}] * 40}, "objects; at most 40 are allowed"),
        *(
            ("bind", BIND | {field: value}, f"dra-extender: bind request: {field} {problem}")
            for field in BIND
            for value, problem in (
                ("", "is empty"),
                ("x" * 254, "has 254 characters; 253 are allowed"),
                (".", 'is ".", which is not a valid name'),
                ("..", 'is "..", which is not a valid name'),
            )
        ),
        *(("bind", {key: BIND[key] for key in BIND if key != field}, field) for field in BIND),
    ],
)
async def test_an_invalid_request_gets_an_error_and_no_decision(
    served: Served,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    body: dict[str, Any],
    problem: str,
) -> None:
    monkeypatch.setattr(verbs, "NODES_OF_REQUEST", 2)
    monkeypatch.setattr(verbs, "OBJECTS_OF_REQUEST", 40)
    status, found, _ = await post(session, f"{served.url}/scheduler/{verb}", body)
    code, field = (200, "Error") if verb in ("filter", "bind") else (400, "detail")
    assert (status, problem in found[field], served.verbs.asked) == (code, True, [])


MALFORMED = [b"", b"{", b"null", b"[]", b"7", b'"x"', b"{}", b'{"Pod":7}', b"\xff\xfe", b'{"Pod":{"metadata":[]}}']


@pytest.mark.parametrize("body", MALFORMED)
async def test_a_malformed_request_is_answered_in_the_protocols_terms(
    served: Served, session: aiohttp.ClientSession, body: bytes
) -> None:
    status, answer, _ = await post(session, served.url + "/scheduler/filter", body)
    assert status == 200
    assert answer["Error"].startswith("dra-extender: filter request: ")
    assert answer["NodeNames"] == []
    status, answer, _ = await post(session, served.url + "/scheduler/bind", body)
    assert status == 200
    assert answer["Error"].startswith("dra-extender: bind request: ")
    for path in ("/scheduler/prioritize", "/scheduler/preempt", "/advisor/prioritize"):
        status, answer, _ = await post(session, served.url + path, body)
        assert status == 400
        assert "request: " in answer["detail"]


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused_without_reading_it_all(
    served: Served, session: aiohttp.ClientSession, announced: bool
) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 10_000

    data: Any = b" " * 400_000 if announced else pieces()
    async with session.post(served.url + "/scheduler/filter", data=data) as reply:
        assert reply.status == 200
        assert "larger than 100000 bytes" in json.loads(await reply.read())["Error"]
        assert reply.headers["Connection"] == "close"
    async with session.post(served.url + "/scheduler/preempt", data=b" " * 100_001) as reply:
        assert reply.status == 413


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_while_it_must_not_decide_it_answers_503_and_closes(
    served: Served, session: aiohttp.ClientSession, verb: str
) -> None:
    served.unavailable = "not synced"
    bodies = {"preempt": PREEMPT, "bind": BIND}
    status, body, reply = await post(session, f"{served.url}/scheduler/{verb}", bodies.get(verb, ARGS))
    assert (status, body) == (503, {"detail": "dra-extender: not synced"})
    assert reply.headers["Connection"] == "close"
    assert served.verbs.asked == []


async def test_a_decision_that_breaks_is_no_500_and_the_next_one_works(
    served: Served, session: aiohttp.ClientSession, tolerated: Reports
) -> None:
    bomb = ARGS | {"Pod": POD | {"metadata": {"name": "bomb"}}}
    status, body, _ = await post(session, served.url + "/scheduler/filter", bomb)
    assert (status, body["Error"]) == (200, "dra-extender: internal error, see its log")
    assert (await post(session, served.url + "/scheduler/prioritize", bomb))[0] == 503
    assert (await post(session, served.url + "/scheduler/filter", ARGS))[1]["Error"] == ""
    assert [place for place, _ in tolerated] == ["verb", "verb"]


async def test_a_client_that_hangs_up_does_not_stop_its_bind(served: Served, session: aiohttp.ClientSession) -> None:
    entered, release, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(_: ExtenderBindingArgs) -> ExtenderBindingResult:
        entered.set()
        await release.wait()
        done.set()
        return ExtenderBindingResult()

    served.verbs.bind_with = slow
    call = asyncio.create_task(post(session, served.url + "/scheduler/bind", BIND))
    await entered.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    release.set()
    async with asyncio.timeout(LONGEST):
        assert await done.wait()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/scheduler/filter", 405),
        ("PUT", "/scheduler/bind", 405),
        ("POST", "/scheduler/filter/", 404),
        ("POST", "/filter", 404),
        ("GET", "/docs", 404),
    ],
)
async def test_only_the_exact_paths_and_methods_exist(
    served: Served, session: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with session.request(method, served.url + path, json=ARGS, allow_redirects=False) as reply:
        assert reply.status == status


async def test_answers_are_counted_by_verb_and_result(served: Served, session: aiohttp.ClientSession) -> None:
    await post(session, served.url + "/scheduler/filter", ARGS)
    await post(session, served.url + "/scheduler/filter", b"{")
    await post(session, served.url + "/scheduler/bind", BIND | {"PodName": "unlucky"})
    text = served.metrics.exposition().decode()
    for line in (
        'dra_extender_verb_requests_total{result="ok",verb="filter"} 1.0',
        'dra_extender_verb_requests_total{result="malformed",verb="filter"} 1.0',
        'dra_extender_verb_requests_total{result="error",verb="bind"} 1.0',
        'dra_extender_verb_duration_seconds_count{verb="filter"} 2.0',
    ):
        assert line in text


async def test_verbs_are_answered_before_the_frameworks_see_the_request() -> None:
    async def never(*_: object) -> None:
        raise AssertionError("a framework was asked")

    app = Served().application()
    app.middleware_stack = never
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        sent.append(message)

    for path in app.verbs:
        await app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    assert len(app.verbs) == 5
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"] * 5


async def test_of_a_client_that_may_not_call_the_body_is_not_read() -> None:
    """Many such bodies at a time filled memory."""
    app = Served().application(clients=AllowedClients(frozenset({"dra-scheduler"})))
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body is read")

    async def send(message: Message) -> None:
        sent.append(message)

    for path in app.verbs:
        await app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert [message["status"] for message in starts] == [403] * 5
    assert all((b"connection", b"close") in message["headers"] for message in starts)


async def test_one_connection_carries_many_calls(served: Served) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        for _ in range(20):
            assert (await post(session, served.url + "/scheduler/filter", ARGS))[0] == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
verb_bodies = st.one_of(
    st.binary(max_size=200),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("Pod", "NodeNames", "Nodes", "NodeNameToMetaVictims", "PodName", "PodNamespace", "PodUID", "Node"),
            json_values,
        ),
    ).map(lambda value: json.dumps(value).encode()),
    st.tuples(st.sampled_from([ARGS, PREEMPT, BIND]), st.integers(0, 400), st.binary(max_size=3)).map(
        lambda cut: json.dumps(cut[0]).encode()[: cut[1]] + cut[2] + json.dumps(cut[0]).encode()[cut[1] :]
    ),
)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verb=st.sampled_from(["filter", "prioritize", "preempt", "bind"]), body=verb_bodies)
async def test_no_body_whatsoever_leads_to_a_500(
    served: Served, session: aiohttp.ClientSession, verb: str, body: bytes
) -> None:
    status, answer, _ = await post(session, f"{served.url}/scheduler/{verb}", body)
    assert status in ({200} if verb in ("filter", "bind") else {200, 400})
    assert isinstance(answer, list if verb == "prioritize" and status == 200 else dict)


def test_what_kube_scheduler_sends_decodes_without_the_slow_path_changing_anything() -> None:
    names = [f"node-{index}" for index in range(5000)]
    args = decode(ExtenderArgs, json.dumps({"Pod": POD, "Nodes": None, "NodeNames": names}).encode())
    assert args.NodeNames == tuple(names)
    answer = encode(ExtenderFilterResult(FailedAndUnresolvableNodes=dict.fromkeys(names, "cannot allocate all claims")))
    assert len(msgspec.json.decode(answer)["FailedAndUnresolvableNodes"]) == 5000
