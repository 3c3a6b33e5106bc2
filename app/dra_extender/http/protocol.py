"""HTTP connections with limits that uvicorn leaves to a proxy in front of it.

`limited` promises, for every connection:
- a request is complete, headers and body, within `request_seconds` of its first byte;
- headers are bounded in size and number, and so are pipelined requests and small chunks of a body; what a client sends
  beyond is not parsed;
- a client that reads nothing of its responses for `taking_seconds` is disconnected;
- a connection without any request is closed after `idle_seconds`, as an idle one is;
- over `connections`, a new connection replaces an idle one: first one that never sent a request, then the one that has
  been idle for longest. If all connections are busy, a reserve of `probe_connections` answers probes only;
- the names in the client's certificate are read once, and are in the state of each request.
`ConnectionLimitReport` counts each connection over the limit, and logs at most one line in `QUIET_SECONDS`.

The class extends uvicorn's httptools protocol, which `uvicorn.Config(http=...)` accepts. Its hooks are not a public
API: tests/http/test_connections.py pins each promise.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dra_extender.http.authorization import CLIENT_NAMES, certified_names
from dra_extender.http.metrics import CONNECTIONS_OVER_LIMIT, OverLimit
from dra_extender.limits import PIECES_OF_BODY
from dra_extender.scheduling.ports import Observer

log = structlog.get_logger(__name__)

PROBES: Final = frozenset({"/livez", "/readyz"})
"""Paths that kubelet asks. They need no token, and the reserve of connections answers them."""
QUIET_SECONDS: Final = 30.0
SMALL: Final = 512
"""Chunks of fewer bytes count against `PIECES_OF_BODY`."""
_CONTINUE: Final = b"HTTP/1.1 100 "
_BUSY: Final = PlainTextResponse("Service Unavailable", 503, {"Connection": "close"})


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Seconds, bytes and numbers, per address. `taking_seconds`: within this time a client has to read something of
    what is sent to it. `pipelined`: requests that may wait for the response to the one before; each takes a hundred
    times the memory of its bytes. `probe_connections`: extra connections, for probes only.
    """

    request_seconds: float = 10.0
    idle_seconds: float = 120.0
    taking_seconds: float = 15.0
    pipelined: int = 8
    header_bytes: int = 64 * 2**10
    headers: int = 100
    connections: int = 1000
    probe_connections: int = 16


class ConnectionLimitReport:
    """Counts and logs connections over the limit, for all addresses of a service."""

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._silent_until = float("-inf")

    def exceeded(self, result: OverLimit, limit: int) -> None:
        """A client opened one connection more than `limit`."""
        self._observer.count(CONNECTIONS_OVER_LIMIT, result)
        now = self._clock()
        if now >= self._silent_until:
            self._silent_until = now + QUIET_SECONDS
            meaning = CONNECTIONS_OVER_LIMIT.values[result]
            log.warning("too many connections", limit=limit, result=meaning, setting="--max-connections")


@dataclass(slots=True, eq=False)
class SingleWrite:
    """A transport that sends head and body of a response in one write: two writes cost one more system call, and wake
    the client twice. The head waits for the first part of the body; only responses to HEAD have none.
    """

    _transport: asyncio.Transport
    _head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Send; only `100 Continue` goes out by itself."""
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


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `limited` makes a subclass with the limits of one server, because uvicorn makes the objects."""

    limits = ConnectionLimits()
    report: ConnectionLimitReport | None = None

    _deadline: TimerHandle | None = None
    _taking: TimerHandle | None = None
    """Runs while the client has not read everything that was sent."""
    _begun = 0
    """Requests so far."""
    _header_bytes = 0
    _small_pieces = 0
    _client_names: frozenset[str] = frozenset()
    _asked = False
    """The client has sent a whole request."""
    _idle_since: float | None = None
    """None while a request is being answered."""
    _probes_only = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self._client_names = certified_names(tls.getpeercert() if tls is not None else None)
        self._set_deadline(self.limits.idle_seconds)
        self._idle_since = self.loop.time()
        self._enforce_connection_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        if self._taking is not None:
            self._taking.cancel()
        super().connection_lost(exc)
        self.pipeline.clear()  # breaks a reference cycle with this connection

    def on_message_begin(self) -> None:
        if self.transport.is_closing():
            raise ConnectionAbortedError("data after the last accepted request is not read")
        super().on_message_begin()
        self.scope["state"][CLIENT_NAMES] = self._client_names
        self._begun += 1
        self._header_bytes = self._small_pieces = 0
        self._set_deadline(self.limits.request_seconds)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.limits.pipelined:
            self._abort()
        if self.transport.is_closing():
            return  # read together with the last accepted request
        refused = self._probes_only and self.url.partition(b"?")[0].decode("latin-1") not in PROBES
        self.app = _BUSY if refused else self.config.loaded_app
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and self.scope["method"] != "HEAD":
            self.cycle.transport = SingleWrite(self.transport)  # type: ignore[assignment] # all that is used

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_header(len(name) + len(value))

    def on_body(self, body: bytes) -> None:
        self._small_pieces += len(body) < SMALL
        if self._small_pieces > PIECES_OF_BODY:
            self._refuse()
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._clear_deadline()
        if self.transport.is_closing():
            return
        self._asked = True
        if not self.cycle.response_complete:
            self._idle_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._idle_since = self.loop.time()
        super().on_response_complete()
        if self._unread:
            self._expect_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        if self._unread:
            self._expect_reading()

    @property
    def _unread(self) -> int:
        """Bytes that the client has not read yet."""
        return self.transport.get_write_buffer_size()

    def _expect_reading(self) -> None:
        if self._taking is None:
            arguments = self._unread, self._begun
            self._taking = self.loop.call_later(self.limits.taking_seconds, self._check_reading, *arguments)

    def _check_reading(self, before: int, begun: int) -> None:
        """Disconnect a client that has read nothing since. A client that has sent another request is spared: the
        unread bytes may be a response of this very turn.
        """
        self._taking = None
        if begun == self._begun and self._unread >= before:
            self.transport.abort()
        elif self._unread:
            self._expect_reading()

    def _enforce_connection_limit(self) -> None:
        """Over the limit, close an idle connection; without an idle one, close this one, or keep it for probes."""
        if len(self.connections) <= self.limits.connections:
            return
        others = [
            other
            for other in self.connections
            if isinstance(other, LimitedProtocol) and other is not self and not other.transport.is_closing()
        ]
        if len(others) < self.limits.connections:
            return
        idle = [(other._asked, other._idle_since, other) for other in others if other._idle_since is not None]
        result: OverLimit = "probes_only"
        if idle:
            result = "idle_closed"
            min(idle, key=lambda entry: entry[:2])[2]._abort()
        elif len(others) >= self.limits.connections + self.limits.probe_connections:
            result = "refused"
            self._abort()
        self._probes_only = len(others) - bool(idle) >= self.limits.connections
        if self.report is not None:
            self.report.exceeded(result, self.limits.connections)

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes or len(self.headers) > self.limits.headers:
            self._refuse()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self) -> None:
        """Disconnect, and parse no more of what was read. Raises ConnectionAbortedError."""
        self._abort()
        raise ConnectionAbortedError("the request is too large")

    def _abort(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def limited(limits: ConnectionLimits, report: ConnectionLimitReport | None = None) -> type[asyncio.Protocol]:
    """The protocol class for `uvicorn.Config(http=...)`."""
    return type("LimitedConnection", (LimitedProtocol,), {"limits": limits, "report": report})
