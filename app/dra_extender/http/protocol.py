"""Connections that cannot be used to exhaust us: limits that uvicorn leaves to a proxy in front.

`guarded` promises: a request is complete, headers and body, within a time limit from its first byte; headers are
bounded in size and number, and so are requests that are sent before the last one is answered; a client that takes
nothing of its answers is cut off; a connection on which nothing was ever asked is closed after the time an idle one
gets. Of too many connections one that waits for its client is closed for a new one: first those that never made a
request, then the one that has waited longest. When all of them work, a reserve still answers probes. The names of a
client that has shown a certificate are read once per connection and are in the state of each request.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dra_extender.http.clients import CLIENT_NAMES, certified_names
from dra_extender.http.crowds import CrowdResult, Crowds


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Seconds, bytes and numbers. `probe_connections`: so many more than `connections`, for probes alone.
    `taking_seconds`: in which a client takes at least something of what is sent to it. `pipelined`: requests that may
    wait for the answer to the one before; each takes a hundred times the memory of its bytes.
    """

    request_seconds: float = 10.0
    idle_seconds: float = 120.0
    taking_seconds: float = 15.0
    pipelined: int = 8
    header_bytes: int = 64 * 2**10
    headers: int = 100
    connections: int = 1000
    probe_connections: int = 16


_CONTINUE = b"HTTP/1.1 100 "
PROBES = frozenset({"/livez", "/readyz"})
"""What kubelet asks. Its paths are open to everybody, and are answered beyond the cap of connections."""


class OneWrite:
    """Head and body of an answer in one write: two cost a call of the system more, and wake the client twice. The head
    waits for the first part of the body, which every answer has, an empty one at least, but for those to HEAD.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """100 Continue goes out at once."""
        if self._head is None and not data.startswith(_CONTINUE):
            self._head = data
            return
        self._transport.write(self._head + data if self._head else data)
        if self._head:
            self._head = b""

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class GuardedProtocol(HttpToolsProtocol):
    """See the module. A subclass with other attributes is a service's own: uvicorn makes the objects."""

    limits = ConnectionLimits()
    crowds: Crowds | None = None
    """Hears of connections that are too many."""

    _deadline: TimerHandle | None = None
    _taking: TimerHandle | None = None
    """Runs while something is sent that the client has not taken yet."""
    _begun = 0
    """Requests so far."""
    _header_bytes = 0
    _client_names: frozenset[str] = frozenset()
    _asked = False
    _waiting_since: float | None = None
    """Since when it has been the client's turn; None while a request is worked on."""
    _probes_only = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self._client_names = certified_names(tls.getpeercert() if tls is not None else None)
        self._expect_within(self.limits.idle_seconds)
        self._waiting_since = self.loop.time()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        if self._taking is not None:
            self._taking.cancel()
        super().connection_lost(exc)
        self.pipeline.clear()  # what waits there knows this connection: nobody else has to find out that both can go

    def on_message_begin(self) -> None:
        if self.transport.is_closing():
            raise ConnectionAbortedError("what comes behind the last request that counts is not read")
        super().on_message_begin()
        self.scope["state"][CLIENT_NAMES] = self._client_names
        self._begun += 1
        self._header_bytes = 0
        self._expect_within(self.limits.request_seconds)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.limits.pipelined:
            self._give_up()
        if self.transport.is_closing():
            return  # what was read together with the last request that counts
        self.app = self._application()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and self.scope["method"] != "HEAD":
            self.cycle.transport = OneWrite(self.transport)  # type: ignore[assignment] # all that is used

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect_nothing()
        if self.transport.is_closing():
            return
        self._asked = True
        if not self.cycle.response_complete:
            self._waiting_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._waiting_since = self.loop.time()
        super().on_response_complete()
        if self._untaken:
            self._expect_taking()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taking()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        if self._untaken:
            self._expect_taking()

    @property
    def _untaken(self) -> int:
        """Bytes that wait for the client to take them."""
        return self.transport.get_write_buffer_size()

    def _expect_taking(self) -> None:
        if self._taking is None:
            arguments = self._untaken, self._begun
            self._taking = self.loop.call_later(self.limits.taking_seconds, self._look_at_taking, *arguments)

    def _look_at_taking(self, before: int, begun: int) -> None:
        """Whether the client has taken something meanwhile, also where nothing but that keeps the connection open. What
        waits may be a later answer, written in this very turn of the loop: a client who goes on asking is not judged.
        """
        self._taking = None
        if begun == self._begun and self._untaken >= before:
            self.transport.abort()
        elif self._untaken:
            self._expect_taking()

    def _make_room(self) -> None:
        """Close a connection when there are too many: another one, or this one when all others work."""
        if len(self.connections) <= self.limits.connections:
            return
        others = [
            other
            for other in self.connections
            if isinstance(other, GuardedProtocol) and other is not self and not other.transport.is_closing()
        ]
        if len(others) < self.limits.connections:
            return
        idle = [(other._asked, other._waiting_since, other) for other in others if other._waiting_since is not None]
        result: CrowdResult = "probes_only"
        if idle:
            result = "idle_closed"
            min(idle, key=lambda entry: entry[:2])[2]._give_up()
        elif len(others) >= self.limits.connections + self.limits.probe_connections:
            result = "refused"
            self._give_up()
        self._probes_only = len(others) - bool(idle) >= self.limits.connections
        if self.crowds is not None:
            self.crowds.met(result, self.limits.connections)

    def _application(self) -> ASGI3Application:
        """What answers the request whose URL has come."""
        refused = self._probes_only and self.url.partition(b"?")[0].decode("latin-1") not in PROBES
        return service_unavailable if refused else self.config.loaded_app

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes or len(self.headers) > self.limits.headers:
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


def guarded(limits: ConnectionLimits, crowds: Crowds | None = None) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn's `http` setting. `crowds` hears of connections that are too many."""
    return type("Guarded", (GuardedProtocol,), {"limits": limits, "crowds": crowds})
