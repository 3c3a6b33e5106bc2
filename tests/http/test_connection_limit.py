"""More connections than there may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from dra_extender.api.extender import ExtenderBindingArgs, ExtenderBindingResult
from dra_extender.http.metrics import CONNECTIONS_OVER_LIMIT, PREFIX, Metrics, OverLimit
from dra_extender.http.protocol import ConnectionLimitReport, ConnectionLimits
from dra_extender.http.server import HttpServer
from tests.support.http.served import Served

FEW = ConnectionLimits(connections=3, probe_connections=1)
PROBE = b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'{"PodName":"p","PodNamespace":"d","PodUID":"u","Node":"n"}'
BIND = b"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> int:
        """The status; 0 when the connection ends instead."""
        self.writer.write(request)
        return await self.status()

    async def status(self) -> int:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if lengths:
            await self._reader.readexactly(int(lengths[0].partition(b":")[2]))
        return int(head.split()[1])

    async def is_closed(self) -> bool:
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True


class Crowd:
    """The server, and clients that connect one after the other."""

    def __init__(self, served: Served, limits: ConnectionLimits) -> None:
        self.release = asyncio.Event()
        self.entered = asyncio.Semaphore(0)
        self.clients: list[Client] = []
        self.metrics = served.metrics
        served.verbs.bind_with = self._bind
        report = ConnectionLimitReport(served.metrics)
        self.server = HttpServer(served.application(), "127.0.0.1", 0, limits=limits, report=report)

    def counted(self, result: OverLimit) -> int:
        """How many connections too many have ended like this."""
        name = f'{PREFIX}{CONNECTIONS_OVER_LIMIT.name}{{result="{result}"}} '
        text = self.metrics.exposition().decode()
        return int(float(text.partition(name)[2].partition("\n")[0]))

    async def connect(self) -> Client:
        """A connection; the server has noticed it."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self.clients.append(client)
        await asyncio.sleep(0.02)
        return client

    async def keep_busy(self) -> Client:
        """A connection with a request that is worked on."""
        client = await self.connect()
        client.writer.write(BIND)
        await self.entered.acquire()
        return client

    async def _bind(self, _: ExtenderBindingArgs) -> ExtenderBindingResult:
        self.entered.release()
        await self.release.wait()
        return ExtenderBindingResult("")


@pytest.fixture
async def crowd(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[Crowd]:
    made = Crowd(served, getattr(request, "param", FEW))
    await made.server.start()
    yield made
    made.release.set()
    for client in made.clients:
        client.writer.close()
    await made.server.stop(1)


async def test_of_too_many_connections_those_that_never_asked_go_first(crowd: Crowd) -> None:
    scheduler = await crowd.connect()
    assert await scheduler.ask(METRICS) == 200
    silent, slow = await crowd.connect(), await crowd.connect()
    slow.writer.write(BIND[:-1])
    newest = await crowd.connect()
    assert await silent.is_closed()
    assert await newest.ask(METRICS) == 200
    last = await crowd.connect()
    assert await slow.is_closed()
    assert [await client.ask(METRICS) for client in (scheduler, newest, last)] == [200, 200, 200]
    assert crowd.counted("idle_closed") == 2


async def test_of_those_that_have_asked_the_one_that_was_quiet_for_longest_goes(crowd: Crowd) -> None:
    first, second, third = [await crowd.connect() for _ in range(3)]
    for client in (second, first, third, first):
        assert await client.ask(METRICS) == 200
    newest = await crowd.connect()
    assert await second.is_closed()
    assert [await client.ask(METRICS) for client in (first, third, newest)] == [200, 200, 200]


async def test_a_request_that_is_worked_on_is_not_cut_off_and_probes_are_still_answered(crowd: Crowd) -> None:
    busy = [await crowd.keep_busy() for _ in range(3)]
    probe = await crowd.connect()
    assert await probe.ask(PROBE) == 200
    assert await probe.ask(PROBE) == 200
    assert await probe.ask(METRICS) == 503
    other = await crowd.connect()
    assert await other.ask(BIND) == 503
    assert crowd.counted("probes_only") >= 1
    crowd.release.set()
    assert [await client.status() for client in busy] == [200, 200, 200]


async def test_the_reserve_of_the_probes_is_not_kept_from_them_by_who_only_waits(crowd: Crowd) -> None:
    for _ in range(3):
        await crowd.keep_busy()
    silent = await crowd.connect()
    probe = await crowd.connect()
    assert await silent.is_closed()
    assert await probe.ask(PROBE) == 200
    assert await probe.ask(BIND) == 503


@pytest.mark.parametrize("crowd", [ConnectionLimits(connections=2, probe_connections=0)], indirect=True)
async def test_beyond_the_reserve_a_new_connection_is_closed_while_all_others_work(crowd: Crowd) -> None:
    busy = [await crowd.keep_busy() for _ in range(2)]
    assert await (await crowd.connect()).is_closed()
    assert crowd.counted("refused") == 1
    crowd.release.set()
    assert [await client.status() for client in busy] == [200, 200]
    assert await (await crowd.connect()).ask(METRICS) == 200


def test_the_log_says_so_once_in_half_a_minute_however_many_come() -> None:
    now = 0.0
    crowds = ConnectionLimitReport(Metrics(), clock=lambda: now)
    with capture_logs() as logs:
        for _ in range(100):
            crowds.exceeded("refused", 1000)
        now = 31.0
        crowds.exceeded("idle_closed", 1000)
    assert [(entry["event"], entry["limit"]) for entry in logs] == [("too many connections", 1000)] * 2
