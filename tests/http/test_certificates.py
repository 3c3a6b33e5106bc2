"""TLS with certificates that change while they are in use."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from dra_extender.http.server import ServerCertificates
from tests.support.http.certificates import write_certificate
from tests.support.http.served import Served, serving

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


class Authority:
    """Writes server files and makes client contexts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.clients = trustme.CA()

    def write(self) -> tuple[Path, Path, Path]:
        return write_certificate(self.directory, self.ca, clients=self.clients)

    def client(self, authority: trustme.CA | None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if authority is not None:
            authority.issue_cert("scheduler").configure_cert(context)
        return context


Call = Callable[[ssl.SSLContext], Any]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def certificates(authority: Authority) -> ServerCertificates:
    return ServerCertificates(*authority.write())


@pytest.fixture
async def call(served: Served, certificates: ServerCertificates) -> AsyncIterator[Call]:
    """Makes one request with a client context; gives the status line and the server's certificate."""

    async def make(context: ssl.SSLContext) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
        )
        try:
            writer.write(HEAD + b"Connection: close\r\n\r\n")
            line = await reader.readline()
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return line.strip(), certificate
        finally:
            writer.close()

    async with serving(served.application(), tls=lambda: certificates.newest) as server:
        yield make


REFUSED = (ssl.SSLError, ConnectionError)


async def refused(call: Call, context: ssl.SSLContext) -> bool:
    try:
        line, _ = await call(context)
    except REFUSED:
        return True
    return bool(line == b"")


async def test_only_clients_of_the_right_authority_get_through(authority: Authority, call: Call) -> None:
    assert (await call(authority.client(authority.clients)))[0] == b"HTTP/1.1 200 OK"
    assert await refused(call, authority.client(None))
    assert await refused(call, authority.client(trustme.CA()))


async def test_a_new_certificate_is_used_for_new_connections(
    authority: Authority, certificates: ServerCertificates, call: Call
) -> None:
    client = authority.client(authority.clients)
    _, before = await call(client)
    assert not certificates.check()
    authority.write()
    assert certificates.check()
    line, after = await call(client)
    assert line == b"HTTP/1.1 200 OK"
    assert after != before


async def test_a_new_client_authority_replaces_the_old_one(
    authority: Authority, certificates: ServerCertificates, call: Call
) -> None:
    old = authority.clients
    authority.clients = trustme.CA()
    authority.write()
    assert certificates.check()
    assert (await call(authority.client(authority.clients)))[0] == b"HTTP/1.1 200 OK"
    assert await refused(call, authority.client(old))


async def test_files_that_cannot_be_used_leave_the_old_ones_in_force(
    authority: Authority, certificates: ServerCertificates, call: Call
) -> None:
    (authority.directory / "tls.crt").write_text("half writ")
    assert not certificates.check()
    assert (await call(authority.client(authority.clients)))[0] == b"HTTP/1.1 200 OK"
    (authority.directory / "tls.crt").unlink()
    assert not certificates.check()
    authority.write()
    assert certificates.check()


async def test_exchanging_certificates_drops_no_call(
    authority: Authority, certificates: ServerCertificates, call: Call
) -> None:
    """Clients call without a pause, on new connections, while server certificate and key are exchanged five times."""
    clients = [authority.client(authority.clients) for _ in range(4)]
    answers: list[tuple[bytes, bytes]] = []
    done = asyncio.Event()

    async def keep_calling(context: ssl.SSLContext) -> None:
        while not done.is_set():
            answers.append(await call(context))

    async with asyncio.TaskGroup() as group:
        for context in clients:
            group.create_task(keep_calling(context))
        for _ in range(5):
            seen = len(answers)
            authority.write()
            assert certificates.check()
            while len(answers) < seen + 2 * len(clients):
                await asyncio.sleep(0.005)
        done.set()
    assert {line for line, _ in answers} == {b"HTTP/1.1 200 OK"}
    assert len({certificate for _, certificate in answers}) >= 5


async def test_a_connection_that_is_kept_alive_outlives_its_certificate(
    authority: Authority, certificates: ServerCertificates, served: Served
) -> None:
    context = authority.client(authority.clients)
    async with serving(served.application(), tls=lambda: certificates.newest) as server:
        url, kept = f"https://localhost:{server.port}/livez", aiohttp.TCPConnector(limit=1, ssl=context)
        async with aiohttp.ClientSession(connector=kept) as session:
            used = set()
            for _ in range(3):
                async with session.get(url) as reply:
                    assert reply.status == 200
                used |= server.state.connections
                authority.write()
                assert certificates.check()
    assert (len(used), server.state.total_requests) == (1, 3)
