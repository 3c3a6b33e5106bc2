"""Many who come at once, and those who never say what they want."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import trustme

from dra_extender.http import server as listeners
from dra_extender.http.server import Listener
from tests.support.patience import LONGEST, until


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=500) as made:
        made.setblocking(False)
        yield made


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


@pytest.fixture
async def guarded(listening: socket.socket, tls: ssl.SSLContext) -> AsyncIterator[Listener]:
    made = Listener(listening, Greeting, lambda: tls)
    yield made
    made.close()
    await made.wait_closed()


async def greeted(address: tuple[str, int], authority: trustme.CA) -> bytes:
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    async with asyncio.timeout(LONGEST):
        reader, writer = await asyncio.open_connection(*address, ssl=trust)
        said = await reader.read()
    writer.close()
    return said


async def test_of_many_who_come_at_once_one_is_let_in_at_a_turn(listening: socket.socket) -> None:
    clients = [socket.create_connection(listening.getsockname()) for _ in range(100)]
    turns, made = 0, Counter[int]()

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made[turns] += 1
            transport.close()

    found = Listener(listening, Noting, None)
    while made.total() < len(clients):
        turns += 1
        await asyncio.sleep(0)
    assert max(made.values()) == 1
    found.close()
    await found.wait_closed()
    for client in clients:
        client.close()


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_is_closed_in_whatever_turn_the_listener_ends(listening: socket.socket, turns: int) -> None:
    """A socket that is left to the garbage collector is a ResourceWarning, and every warning fails a test."""
    found = Listener(listening, Greeting, None)
    with socket.create_connection(listening.getsockname()) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        found.close()
        await found.wait_closed()
        listening.close()
        gc.collect()
        client.settimeout(LONGEST)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(16) in (b"", b"hello")


@pytest.mark.usefixtures("guarded")
async def test_who_never_negotiates_makes_room_for_who_does(
    listening: socket.socket, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_PATIENCE", 0.01)
    slow = [socket.create_connection(listening.getsockname()) for _ in range(3 * listeners.HANDSHAKES)]
    for client in slow:
        client.send(b"\x16")
    assert await greeted(listening.getsockname(), authority) == b"hello"
    # One more for the client that was greeted.
    await until(lambda: sum(map(_is_closed, slow)) == 2 * listeners.HANDSHAKES + 1)
    for client in slow:
        client.close()


@pytest.mark.usefixtures("guarded")
async def test_who_says_nothing_takes_no_slot(
    listening: socket.socket, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKES", 2)
    monkeypatch.setattr(listeners, "HANDSHAKE_PATIENCE", LONGEST)
    silent = [socket.create_connection(listening.getsockname()) for _ in range(50)]
    assert await greeted(listening.getsockname(), authority) == b"hello"
    assert not any(map(_is_closed, silent))
    for client in silent:
        client.close()


@pytest.mark.usefixtures("guarded")
async def test_of_many_who_say_nothing_the_oldest_are_ended(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SILENT", 10)
    silent = [socket.create_connection(listening.getsockname()) for _ in range(30)]
    await until(lambda: sum(map(_is_closed, silent)) == 20)
    assert [_is_closed(client) for client in silent] == [True] * 20 + [False] * 10
    for client in silent:
        client.close()


@pytest.mark.usefixtures("guarded")
async def test_who_says_nothing_for_long_is_ended(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", 0.01)
    with socket.create_connection(listening.getsockname()) as client:
        client.setblocking(False)
        async with asyncio.timeout(LONGEST):
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""


def _is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.usefixtures("guarded")
async def test_who_negotiates_at_once_is_let_in_however_many_come(
    listening: socket.socket, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKES", 2)
    monkeypatch.setattr(listeners, "HANDSHAKE_PATIENCE", LONGEST)
    said = await asyncio.gather(*(greeted(listening.getsockname(), authority) for _ in range(20)))
    assert said == [b"hello"] * 20


@pytest.mark.usefixtures("guarded")
async def test_noise_instead_of_a_handshake_ends_that_connection_alone(
    listening: socket.socket, authority: trustme.CA
) -> None:
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(LONGEST):
        try:
            assert b"hello" not in await reader.read()
        except ConnectionResetError:
            pass
    writer.close()
    assert await greeted(listening.getsockname(), authority) == b"hello"


async def test_when_files_run_out_accepting_goes_on_later(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    accept, problems = loop.sock_accept, [OSError(24, "Too many open files")]

    async def failing(at: socket.socket) -> tuple[socket.socket, object]:
        if problems:
            raise problems.pop()
        return await accept(at)

    monkeypatch.setattr(loop, "sock_accept", failing)
    monkeypatch.setattr(listeners, "RETRY_SECONDS", 0.0)
    found = Listener(listening, Greeting, None)
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    assert await reader.read() == b"hello"
    writer.close()
    found.close()
    await found.wait_closed()


async def test_the_socket_may_be_closed_at_once_and_its_number_given_to_another(listening: socket.socket) -> None:
    found = Listener(listening, Greeting, None)
    await asyncio.sleep(0)
    number = listening.fileno()
    found.close()
    listening.close()
    one, other = socket.socketpair()
    with one, other:
        assert number in (one.fileno(), other.fileno())
        writable = asyncio.Event()
        asyncio.get_running_loop().add_writer(number, writable.set)
        async with asyncio.timeout(LONGEST):
            await writable.wait()
        asyncio.get_running_loop().remove_writer(number)
    await found.wait_closed()
