"""Forwarding: a replica that is not the leader passes calls of the verbs on to the leader, unchanged.

`Forwarding` promises: this replica decides no call while another one may lead. A call waits for a leader up to
`LEADER_SECONDS`. It is sent again only if no replica can have decided it: no connection was made, or the replica
answered that it does not lead. A forwarded call is not forwarded again. The response closes the client's connection, so
clients that keep connections open end up at the leader.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Protocol

import aiohttp
import structlog
from starlette.responses import Response
from starlette.types import Scope

from dra_extender.http.responses import CLOSE, error_response
from dra_extender.http.server import TLS
from dra_extender.kube.client import Connections

log = structlog.get_logger(__name__)

LEADER_SECONDS: Final = 2.5
"""How long a call waits for a leader. The shipped configurations of kube-scheduler give filter 3 seconds."""
RETRY_SECONDS: Final = 0.05
"""Pause before the same leader is called again."""
CONNECT_SECONDS: Final = 1.0
RESPONSE_SECONDS: Final = 60.0
"""More than kube-scheduler waits for any verb."""
QUIET_SECONDS: Final = 30.0

HEADER: Final = b"dra-extender-forwarded"
MISDIRECTED: Final = 421
"""Status for a forwarded call at a replica that does not lead: nothing was done."""


class LeaderInfo(Protocol):
    """Which replica leads at this moment."""

    def leads(self) -> bool:
        """True when this replica leads."""

    def leader(self) -> str:
        """The URL of another replica that leads; empty when none is known."""

    async def news(self) -> None:
        """Wait until another replica leads. May return early."""


class _NotDecidedError(Exception):
    """The other replica did not decide the call, so it can be sent again."""


class Forwarding:
    """One per service. Make it in the event loop, and call `close` at the end. `tls`: with certificate and trusted
    authorities (None: plain HTTP); the certificate of the other replica must have `name`.
    """

    def __init__(self, leadership: LeaderInfo, tls: TLS | None = None, name: str = "") -> None:
        self._leadership = leadership
        self._tls = tls
        self._name = name
        self._connections = Connections()
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._connections.make)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        self._quiet_until = 0.0

    async def forward(self, scope: Scope, body: bytes) -> Response | None:
        """The response of the leader; None when this replica leads, or when no leader was reached in time."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + LEADER_SECONDS
        while not self._leadership.leads():
            url = self._leadership.leader()
            if url:
                try:
                    return await self._post(url + scope["path"], body)
                except _NotDecidedError as problem:
                    self._report(url, problem)
            left = deadline - clock()
            if left <= 0:
                return None
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, RETRY_SECONDS if url else left)):
                    await self._leadership.news()
        return None

    async def close(self) -> None:
        await self._session.close()
        await self._connections.closed()

    async def _post(self, url: str, body: bytes) -> Response:
        """The response; 503 when it was lost: the other replica may have decided the call. Raises _NotDecidedError."""
        try:
            async with self._session.post(
                url,
                data=body,
                headers={HEADER.decode(): "1", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=RESPONSE_SECONDS, sock_connect=CONNECT_SECONDS),
                ssl=True if self._tls is None else self._tls(),
                server_hostname=self._name or None,
                allow_redirects=False,
            ) as reply:
                if reply.status == MISDIRECTED:
                    raise _NotDecidedError("it does not lead")
                return Response(await reply.read(), reply.status, CLOSE, "application/json")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as refused:
            raise _NotDecidedError(str(refused)) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as lost:
            problem = str(lost) or type(lost).__name__
            return error_response(503, f"dra-extender: the leader did not respond: {problem}", CLOSE)

    def _report(self, url: str, problem: _NotDecidedError) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_SECONDS
            log.warning("cannot forward calls to the leader", leader=url, problem=str(problem))
