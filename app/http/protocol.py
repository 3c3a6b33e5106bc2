"""Connections that cannot be used to exhaust us: limits that uvicorn leaves to a proxy in front.

`guarded` promises: a request is complete, headers and body, within a time limit from its first byte; headers are
bounded in size and number; a connection on which nothing was ever asked is closed after the time an idle one gets. The
names of a client that has shown a certificate are read once per connection and are in the state of each request.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.clients import CLIENT_NAMES, certified_names


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Seconds, bytes and a number."""

    request_seconds: float = 10.0
    idle_seconds: float = 120.0
    header_bytes: int = 64 * 2**10
    headers: int = 100


def guarded(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn's `http` setting."""

    class GuardedProtocol(HttpToolsProtocol):
        _deadline: TimerHandle | None = None
        _header_bytes = 0
        _client_names: frozenset[str] = frozenset()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            tls = transport.get_extra_info("ssl_object")
            self._client_names = certified_names(tls.getpeercert() if tls is not None else None)
            self._expect_within(limits.idle_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._expect_nothing()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["state"][CLIENT_NAMES] = self._client_names
            self._header_bytes = 0
            self._expect_within(limits.request_seconds)

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            self._count(len(url))

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            self._count(len(name) + len(value))

        def on_message_complete(self) -> None:
            self._expect_nothing()
            super().on_message_complete()

        def _count(self, size: int) -> None:
            self._header_bytes += size
            if self._header_bytes > limits.header_bytes or len(self.headers) > limits.headers:
                self._give_up()

        def _expect_within(self, seconds: float) -> None:
            self._expect_nothing()
            self._deadline = self.loop.call_later(seconds, self._give_up)

        def _expect_nothing(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.abort()

    return GuardedProtocol
