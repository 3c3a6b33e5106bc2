"""What a client leaves behind: nothing, whatever the other side does."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme

from dra_extender.kube.client import Connections, KubeClient
from dra_extender.kube.credentials import ClientSettings, Credentials

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
