"""Slow, oversized and silent clients; shutdown."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, cast
from unittest.mock import Mock

import pytest

from dra_extender.api.extender import ExtenderBindingArgs, ExtenderBindingResult
from dra_extender.http.protocol import ConnectionLimits, LimitedProtocol
from dra_extender.http.server import HttpServer
from dra_extender.limits import PIECES_OF_BODY
from tests.support.http.served import Served, serving
from tests.support.patience import LONGEST, until

PATIENT = ConnectionLimits(request_seconds=LONGEST, idle_seconds=LONGEST, header_bytes=4096, headers=20)
HASTY = ConnectionLimits(request_seconds=0.1, idle_seconds=0.3, header_bytes=4096, headers=20)


@pytest.fixture
async def server(served: Served) -> AsyncIterator[HttpServer]:
    async with serving(served.application(), limits=PATIENT) as made:
        yield made


def connections_of(server: HttpServer) -> set[LimitedProtocol]:
    """Those that are open; the set itself, so that it changes with them."""
    return cast(set[LimitedProtocol], server.state.connections)


def answered(connection: LimitedProtocol) -> bool:
    """True when everything was written of the answer to its request."""
    return connection._asked and connection.cycle.response_complete


async def is_refused(port: int) -> bool:
    """True when no process listens."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # the listener closed just now
    writer.close()
    return False


async def exchange(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """Everything the server says until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(LONGEST):
            return await reader.read()
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


def much(end_of_head: bytes) -> bytes:
    """A request with an answer of several megabytes, more than the system takes at once."""
    names = [f"node-{number}-{'x' * 200}" for number in range(60_000)]
    body = json.dumps({"Pod": {"metadata": {"name": "p", "namespace": "n"}}, "NodeNames": names}).encode()
    return b"POST /scheduler/filter HTTP/1.1\r\nContent-Length: %d%b%b" % (len(body), end_of_head, body)


MUCH = 2**26
CLOSE = b"\r\nConnection: close\r\n\r\n"
KEEP = b"\r\n\r\n"
CHUNKED = b"POST /scheduler/filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


async def test_what_follows_a_request_that_is_too_large_is_not_parsed(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(LimitedProtocol, "on_chunk_complete", lambda _: parsed.append(b"chunk"), raising=False)
    on_header = LimitedProtocol.on_header

    def header(connection: LimitedProtocol, name: bytes, value: bytes) -> None:
        parsed.append(name)
        on_header(connection, name, value)

    monkeypatch.setattr(LimitedProtocol, "on_header", header)
    await exchange(server.port, HEAD + b"X: y\r\n" * 5_000 + b"\r\n")
    assert len(parsed) <= PATIENT.headers + 1
    parsed.clear()
    await exchange(server.port, CHUNKED + b"1\r\n \r\n" * 2 * PIECES_OF_BODY)
    assert len(parsed) <= PIECES_OF_BODY + 2


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((HEAD,), id="headers that never end"),
        pytest.param((b"POST /scheduler/filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",), id="a body that never ends"),
        pytest.param((), id="nothing at all"),
        pytest.param((HEAD + b"X: " + b"y" * 5000 + b"\r\n\r\n",), id="a header that is too long"),
        pytest.param((HEAD + b"X: y\r\n" * 30 + b"\r\n",), id="too many headers"),
        pytest.param((CHUNKED + b"1\r\n \r\n" * (PIECES_OF_BODY + 1),), id="too many chunks of one byte"),
    ],
)
async def test_a_client_that_holds_a_connection_without_a_request_loses_it(
    served: Served, parts: tuple[bytes, ...]
) -> None:
    async with serving(served.application(), limits=HASTY) as server:
        assert await exchange(server.port, *parts) in (b"", b"reset")


async def test_a_request_in_pieces_is_fine_when_it_is_quick_enough(server: HttpServer) -> None:
    answer = await exchange(server.port, HEAD, b"Connection: close\r\n", b"\r\n", pause=0.005)
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(HEAD + b"\r\n", b"HTTP/1.1 200 OK", id="get"),
        pytest.param(b"POST /scheduler/bind HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 200 OK", id="verb"),
        pytest.param(b"HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 ", id="head"),
    ],
)
async def test_an_answer_is_one_write(
    served: Served, monkeypatch: pytest.MonkeyPatch, request_: bytes, answer: bytes
) -> None:
    written: list[bytes] = []

    class Recorded(LimitedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
            def write(data: bytes) -> None:
                written.append(bytes(data))
                transport.write(data)

            recording = cast(Any, Mock(wraps=transport))
            recording.write = write
            super().connection_made(recording)

    monkeypatch.setattr("dra_extender.http.protocol.LimitedProtocol", Recorded)
    async with serving(served.application(), limits=PATIENT) as server:
        closing = request_.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
        said = await exchange(server.port, closing)
    assert said.startswith(answer)
    assert written == [said]


@pytest.mark.parametrize("end_of_head", [KEEP, CLOSE])
async def test_a_client_that_takes_nothing_of_its_answer_loses_its_connection(
    served: Served, end_of_head: bytes
) -> None:
    async with serving(served.application(max_body=MUCH), limits=ConnectionLimits(taking_seconds=0.2)) as server:
        connections = connections_of(server)
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            await asyncio.to_thread(silent.sendall, much(end_of_head))
            await until(lambda: any(answered(each) for each in connections))
            await until(lambda: not connections, "the end of the connection")
    assert not connections


async def test_a_client_that_takes_its_answer_slowly_gets_all_of_it(served: Served) -> None:
    received = judged = 0
    async with (
        serving(served.application(max_body=MUCH), limits=ConnectionLimits(taking_seconds=LONGEST)) as server,
        asyncio.timeout(LONGEST),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**16)
        writer.write(much(CLOSE))
        while part := await reader.read(2**18):
            received += len(part)
            for connection in list(connections_of(server)):
                before = connection._unread
                await asyncio.sleep(0)
                if 0 < connection._unread < before:  # the time is over just now
                    connection._check_reading(before, connection._begun)
                    judged += 1
        writer.close()
    assert (received > 10_000_000, judged > 0) == (True, True)


async def test_a_client_that_goes_on_asking_is_not_cut_off_for_an_answer_of_this_moment(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []

    class Judged(LimitedProtocol):
        def on_response_complete(self) -> None:
            super().on_response_complete()
            waiting.append(self._unread)
            self._check_reading(1, self._begun - 1)  # as planned after the answer before, and due just now

    monkeypatch.setattr("dra_extender.http.protocol.LimitedProtocol", Judged)
    async with serving(served.application(max_body=MUCH), limits=PATIENT) as server:
        answers = await exchange(server.port, much(KEEP), much(CLOSE))
    assert answers.count(b"HTTP/1.1 200") == 2
    assert (len(waiting), all(waiting)) == (2, True)


async def test_few_requests_may_wait_for_the_answer_to_the_one_before(server: HttpServer) -> None:
    few, many = HEAD + b"\r\n", HEAD + b"Connection: close\r\n\r\n"
    answers = await exchange(server.port, few * 3 + many)
    assert answers.count(b"HTTP/1.1 200") == 4
    assert await exchange(server.port, few * 100) in (b"", b"reset")


async def test_behind_the_request_that_is_one_too_many_nothing_is_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[None] = []

    class Counting(LimitedProtocol):
        def on_url(self, url: bytes) -> None:
            begun.append(None)
            super().on_url(url)

    monkeypatch.setattr("dra_extender.http.protocol.LimitedProtocol", Counting)
    async with serving(served.application(), limits=PATIENT) as server:
        await exchange(server.port, (HEAD + b"\r\n") * 1_000)
    assert len(begun) <= 1 + PATIENT.pipelined + 1


async def test_a_connection_leaves_nothing_that_only_the_garbage_collector_finds(server: HttpServer) -> None:
    await exchange(server.port, HEAD + b"Connection: close\r\n\r\n")
    gc.collect()
    for _ in range(10):
        answer = await exchange(
            server.port, b"POST /scheduler/bind HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", HEAD[:-2], CLOSE
        )
        assert answer.count(b"HTTP/1.1 200") == 2
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        left = [each for each in gc.garbage if type(each).__module__.partition(".")[0] in ("dra_extender", "uvicorn")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left == []


async def test_a_client_that_waits_to_be_told_to_continue_is_told(server: HttpServer) -> None:
    head = b"POST /scheduler/bind HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(LONGEST):
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_nonsense_is_a_400(server: HttpServer) -> None:
    assert (await exchange(server.port, b"\x00\x01nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def test_running_requests_finish_while_it_stops(served: Served) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(_: ExtenderBindingArgs) -> ExtenderBindingResult:
        entered.set()
        await release.wait()
        return await served.verbs.bind_at_once(_)

    served.verbs.bind_with = slow
    server = HttpServer(served.application(), "127.0.0.1", 0)
    await server.start()
    body = b'{"PodName":"p","PodNamespace":"d","PodUID":"u","Node":"n"}'
    head = b"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    call = asyncio.create_task(exchange(server.port, head + body))
    await entered.wait()
    stopping = asyncio.create_task(server.stop(LONGEST))
    while not await is_refused(server.port):
        await asyncio.sleep(0.005)
    assert not stopping.done()
    release.set()
    assert (await call).endswith(b'{"Error":""}')
    await stopping


async def test_an_address_in_use_is_named(served: Served) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            HttpServer(served.application(), "127.0.0.1", port)
