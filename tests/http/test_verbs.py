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


async def test_filter_answers_with_all_four_keys_and_a_length(served: Served, session: aiohttp.ClientSession) -> None:
    status, body, reply = await post(session, served.url + "/scheduler/filter", ARGS)
    assert (status, body) == (
        200,
        {
            "NodeNames": ["n1"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {"bad": "cannot allocate all claims"},
            "Error": "",
        },
    )
    assert int(reply.headers["Content-Length"]) > 0
    assert "Transfer-Encoding" not in reply.headers


async def test_filter_with_no_nodes_left_says_so_with_an_empty_list(
    served: Served, session: aiohttp.ClientSession
) -> None:
    _, body, _ = await post(session, served.url + "/scheduler/filter", ARGS | {"NodeNames": ["bad"]})
    assert body["NodeNames"] == []


@pytest.mark.parametrize("path", ["/scheduler/prioritize", "/advisor/prioritize"])
async def test_prioritize_answers_with_a_bare_list_of_integers(
    served: Served, session: aiohttp.ClientSession, path: str
) -> None:
    status, body, _ = await post(session, served.url + path, ARGS)
    assert (status, body) == (200, [{"Host": "n1", "Score": 0}, {"Host": "bad", "Score": 1}])


async def test_preempt_answers_with_meta_victims(served: Served, session: aiohttp.ClientSession) -> None:
    status, body, _ = await post(session, served.url + "/scheduler/preempt", PREEMPT)
    assert (status, body) == (200, {"NodeNameToMetaVictims": PREEMPT["NodeNameToMetaVictims"]})


async def test_bind_answers_with_an_error_field_in_any_case(served: Served, session: aiohttp.ClientSession) -> None:
    url = served.url + "/scheduler/bind"
    assert (await post(session, url, BIND))[:2] == (200, {"Error": ""})
    assert (await post(session, url, BIND | {"PodName": "unlucky"}))[:2] == (200, {"Error": "no such pod"})
    assert served.verbs.asked[0] == ExtenderBindingArgs("p", "default", "u", "n2")


async def test_a_scheduler_that_sends_whole_nodes_is_told_what_to_set(
    served: Served, session: aiohttp.ClientSession
) -> None:
    whole = {"Pod": POD, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}, "NodeNames": None}
    status, body, _ = await post(session, served.url + "/scheduler/filter", whole)
    assert status == 200
    assert "nodeCacheCapable: true" in body["Error"]
    status, body, _ = await post(session, served.url + "/scheduler/prioritize", whole)
    assert status == 400
    assert "nodeCacheCapable: true" in body["detail"]
    assert served.verbs.asked == []


async def test_a_preemption_without_any_victims_is_refused(served: Served, session: aiohttp.ClientSession) -> None:
    nothing = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    status, body, _ = await post(session, served.url + "/scheduler/preempt", nothing)
    assert status == 400
    assert "neither NodeNameToMetaVictims nor NodeNameToVictims" in body["detail"]


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


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
async def test_a_bind_without_one_of_its_fields_names_it(
    served: Served, session: aiohttp.ClientSession, missing: str
) -> None:
    url = served.url + "/scheduler/bind"
    _, body, _ = await post(session, url, {key: value for key, value in BIND.items() if key != missing})
    assert missing in body["Error"]
    _, body, _ = await post(session, url, BIND | {missing: ""})
    assert body["Error"] == f"dra-extender: bind request: {missing} is empty"
    assert served.verbs.asked == []


@pytest.mark.parametrize("wrong", ["PodName", "PodNamespace", "PodUID", "Node"])
async def test_a_bind_of_a_name_that_is_too_long_for_one_is_refused_without_it(
    served: Served, session: aiohttp.ClientSession, wrong: str
) -> None:
    _, body, _ = await post(session, served.url + "/scheduler/bind", BIND | {wrong: "x" * 254})
    assert body["Error"] == f"dra-extender: bind request: {wrong} has 254 characters; 253 are allowed"
    assert served.verbs.asked == []


async def test_more_nodes_than_a_cluster_has_are_refused(
    served: Served, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "NODES_OF_REQUEST", 2)
    names = ["n1", "n2", "n3"]
    problem = "dra-extender: the request has 3 nodes in {}; at most 2 are allowed"
    _, body, _ = await post(session, served.url + "/scheduler/filter", ARGS | {"NodeNames": names})
    assert body["Error"] == problem.format("NodeNames")
    status, body, _ = await post(session, served.url + "/scheduler/prioritize", ARGS | {"NodeNames": names})
    assert (status, body["detail"]) == (400, problem.format("NodeNames"))
    for field in ("NodeNameToMetaVictims", "NodeNameToVictims"):
        given: dict[str, Any] = (
            PREEMPT | {"NodeNameToMetaVictims": None} | {field: {name: {"Pods": []} for name in names}}
        )
        status, body, _ = await post(session, served.url + "/scheduler/preempt", given)
        assert (status, body["detail"]) == (400, problem.format(field))
    assert served.verbs.asked == []


@pytest.mark.parametrize("wrong", ["PodName", "PodNamespace", "PodUID", "Node"])
@pytest.mark.parametrize("name", [".", ".."])
async def test_a_bind_of_what_would_be_another_path_is_refused_by_name(
    served: Served, session: aiohttp.ClientSession, wrong: str, name: str
) -> None:
    _, body, _ = await post(session, served.url + "/scheduler/bind", BIND | {wrong: name})
    assert body["Error"] == f'dra-extender: bind request: {wrong} is "{name}", which is not a valid name'
    assert served.verbs.asked == []


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


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
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
