"""One session with the API server: answers, failures, repetitions, and connections until they are closed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme
from aiohttp import web

from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    GoneError,
    NotFoundError,
    NotServedError,
    OutcomeUnknownError,
    RejectedError,
    ThrottledError,
    UnreachableError,
    is_passing,
)
from dra_extender.kube.client import MERGE_PATCH, Connections, KubeClient
from dra_extender.kube.credentials import ClientSettings, Credentials
from tests.support.kube.scripted import Lines, ScriptedServer


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, RejectedError),
        (401, RejectedError),
        (403, RejectedError),
        (404, NotServedError),
        (409, ConflictError),
        (410, GoneError),
        (422, RejectedError),
        (500, OutcomeUnknownError),
        (503, OutcomeUnknownError),
        (504, OutcomeUnknownError),
    ],
)
async def test_each_status_has_an_exception_that_carries_the_servers_words(
    server: ScriptedServer, client: KubeClient, status: int, expected: type[ApiError]
) -> None:
    server.on("POST", "/x", (status, {"reason": "Why", "message": "because"}))
    with pytest.raises(expected) as caught:
        await client.create("/x", b"{}")
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, "Why", "because")


GROUP_DETAILS = {"group": "resource.k8s.io"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"details": {"kind": "pods", "name": "p"}}, NotFoundError),
        ({"details": {"kind": "resourceclaims", "name": "c", **GROUP_DETAILS}}, NotFoundError),
        ({"details": {"kind": "namespaces", "name": "n"}}, NotServedError),
        ({"details": {}, "message": "the server could not find the requested resource"}, NotServedError),
        ({"details": {"kind": "pods"}}, NotServedError),
        ({}, NotServedError),
    ],
    ids=["a pod", "a claim", "a namespace", "a resource", "no name", "no details"],
)
async def test_only_an_answer_that_names_an_object_says_that_it_does_not_exist(
    server: ScriptedServer, client: KubeClient, body: dict[str, Any], expected: type[ApiError]
) -> None:
    server.on("GET", "/x", (404, {"kind": "Status", "reason": "NotFound", "code": 404, **body}))
    with pytest.raises(ApiError) as caught:
        await client.get("/x")
    assert type(caught.value) is expected
    assert is_passing(caught.value) == (expected is NotServedError)


async def test_the_page_of_a_path_that_nobody_serves_says_nothing_about_objects(
    server: ScriptedServer, client: KubeClient
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found")

    server.on("GET", "/x", answer)
    with pytest.raises(NotServedError, match="404 page not found"):
        await client.get("/x")


async def test_an_error_that_is_no_status_object_keeps_its_text(server: ScriptedServer, client: KubeClient) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=502, text="bad gateway")

    server.on("GET", "/x", answer)
    with pytest.raises(OutcomeUnknownError, match="bad gateway"):
        await client.get("/x")


async def test_a_503_that_asks_to_come_back_may_have_been_carried_out(
    server: ScriptedServer, client: KubeClient
) -> None:
    server.on("PATCH", "/x", (503, {}, {"Retry-After": "0.01"}))
    with pytest.raises(OutcomeUnknownError):
        await client.patch("/x", b"{}")
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 304, 307])
async def test_a_redirect_is_no_answer(server: ScriptedServer, client: KubeClient, status: int) -> None:
    server.on("GET", "/x", (status, {"a": 1}, {"Location": "https://login.example.com/"}))
    with pytest.raises(RejectedError, match=r"a redirect to https://login\.example\.com/"):
        await client.get("/x")
    with pytest.raises(RejectedError, match="a redirect"):
        async for _ in client.stream("/x", {}):
            pass


async def test_a_throttled_read_is_repeated_after_the_time_the_server_names(
    server: ScriptedServer, client: KubeClient
) -> None:
    server.on("GET", "/x", (429, {}, {"Retry-After": "0.01"}), (429, {}, {"Retry-After": "0.01"}), (200, {"a": 1}))
    assert await client.get("/x") == b'{"a": 1}'
    assert len(server.asked) == 3


async def test_a_throttled_creation_is_handed_to_the_caller(server: ScriptedServer, client: KubeClient) -> None:
    server.on("POST", "/x", (429, {"details": {"retryAfterSeconds": 7}}))
    with pytest.raises(ThrottledError) as caught:
        await client.create("/x", b"{}")
    assert caught.value.retry_after == 7
    assert len(server.asked) == 1


async def test_a_throttled_read_gives_up_when_the_wait_would_exceed_the_timeout(
    server: ScriptedServer, client: KubeClient
) -> None:
    server.on("GET", "/x", (429, {}, {"Retry-After": "60"}))
    with pytest.raises(ThrottledError):
        await client.get("/x", timeout=1)
    assert len(server.asked) == 1


async def test_a_server_that_answers_too_late_leaves_the_outcome_unknown(
    server: ScriptedServer, client: KubeClient
) -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.on("PATCH", "/x", answer)
    with pytest.raises(OutcomeUnknownError) as caught:
        await client.patch("/x", b"{}", timeout=0.1)
    assert (caught.value.status, caught.value.reason) == (0, "Timeout")


async def test_a_connection_lost_after_sending_leaves_the_outcome_unknown(
    server: ScriptedServer, client: KubeClient
) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.on("POST", "/x", answer)
    with pytest.raises(OutcomeUnknownError) as caught:
        await client.create("/x", b"{}")
    assert caught.value.reason == "ConnectionLost"
    assert len(server.asked) == 1


async def test_a_refused_connection_means_nothing_was_done() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with await KubeClient.connect(ClientSettings(server=f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.create("/x", b"{}")
    assert caught.value.status == 0
    assert str(caught.value) == f"POST /x: cannot connect to 127.0.0.1:{port}: Connection refused"


async def test_a_patch_is_sent_with_its_content_type(server: ScriptedServer, client: KubeClient) -> None:
    server.on("PATCH", "/x", (200, {}))
    await client.patch("/x", b'{"a":null}')
    (asked,) = server.asked
    assert asked.headers["Content-Type"] == MERGE_PATCH
    assert asked.body == b'{"a":null}'
    assert asked.headers["User-Agent"].startswith("dra-extender/")
    assert "Authorization" not in asked.headers


async def test_lines_of_a_watch_may_be_torn_into_any_chunks(server: ScriptedServer, client: KubeClient) -> None:
    lines = [b'{"type":"A"}', b"x" * 700_000, b"short"]
    whole = b"\n".join(lines) + b"\ntorn"

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(whole), 65_537):
            await response.write(whole[start : start + 65_537])
        return response

    server.on("GET", "/x", answer, watch=True)
    assert [line async for line in client.stream("/x", {"watch": "1"})] == lines


async def test_a_silent_watch_ends(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_extender.kube.client.WATCH_SILENCE", 0.1)
    server.on("GET", "/x", watch_lines(b"one\n", hold=True), watch=True)
    lines = client.stream("/x", {"watch": "1"})
    assert await anext(lines) == b"one"
    with pytest.raises(OutcomeUnknownError):
        await anext(lines)


async def test_a_closed_client_sends_nothing(server: ScriptedServer, client: KubeClient) -> None:
    await client.close()
    with pytest.raises(UnreachableError, match="closed"):
        await client.create("/x", b"{}")
    assert server.asked == []


async def test_a_watch_ends_when_its_client_is_closed_between_two_lines(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines
) -> None:
    server.on("GET", "/x", watch_lines(b"one\n", hold=True), watch=True)
    lines = client.stream("/x", {"watch": "1"})
    assert await anext(lines) == b"one"
    await client.close()
    with pytest.raises(UnreachableError, match="closed"):
        await anext(lines)


@pytest.mark.parametrize(
    ("environment", "asks"),
    [
        ({}, False),
        ({"http_proxy": "http://proxy.example.com:3128"}, True),
        ({"https_proxy": "http://proxy.example.com:3128"}, False),
        ({"http_proxy": "http://proxy.example.com:3128", "no_proxy": "127.0.0.0,api.example.com"}, False),
    ],
)
async def test_proxies_are_looked_for_only_where_there_is_one(
    environment: dict[str, str], asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with await KubeClient.connect(ClientSettings(server="http://api.example.com")) as client:
        assert client._session.trust_env is asks


WATCH = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"


@pytest.fixture
async def stubborn() -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """A watch with TLS whose server never says goodbye: its address, and whom to trust."""
    authority = trustme.CA()
    serving, trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    authority.configure_trust(trust)
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WATCH)
        await writer.drain()
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a read transport, too
        served.append(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", trust
    for writer in served:
        writer.transport.abort()
    server.close()


async def test_a_watch_with_tls_that_was_given_up_is_closed_with_its_client(
    stubborn: tuple[str, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []
    make = Connections.make

    def recorded(self: Connections, address: tuple[Any, ...]) -> socket.socket:
        made.append(make(self, address))
        return made[-1]

    monkeypatch.setattr(Connections, "make", recorded)
    url, trust = stubborn
    credentials = Credentials(url)
    credentials.ssl = trust
    async with KubeClient(credentials, ClientSettings(server=url)) as client:
        lines = client.stream("/x", {"watch": "1"})
        assert await anext(lines) == b"one"
        await lines.aclose()
        assert [one.fileno() for one in made] != [-1], "TLS waits for the other side"
    assert [one.fileno() for one in made] == [-1]
