"""Calls that reach a replica which does not lead: they are passed on, as they came, to the one that does.

`Forwarding` promises: this replica never decides a call while another may lead. A call waits for a leader, no longer
than kube-scheduler waits for an answer of filter. It is sent again only when it was not decided: the connection was not
made, or the replica that was asked said that it does not lead. A forwarded call is not forwarded again. The answer
closes the client's connection, so that connections that are kept open end up at the leader.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

import aiohttp
import msgspec
import structlog
from starlette.types import Scope

from dra_extender.http.answers import Answer, problem
from dra_extender.kube.connections import Connections

log = structlog.get_logger(__name__)

PATIENCE: Final = 2.5
"""Seconds that a call waits for a leader: the shipped configurations of kube-scheduler give filter 3."""
PAUSE: Final = 0.05
"""Seconds until a leader that could not be asked is asked again, unless there is another one before."""
CONNECT_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 60.0
"""More than kube-scheduler waits for any verb."""
QUIET_SECONDS: Final = 30.0

HEADER: Final = b"dra-extender-forwarded"
MISDIRECTED: Final = 421
"""The status of a forwarded call that reaches a replica which does not decide: nothing was done."""


class Leadership(Protocol):
    """Who decides at this moment."""

    def leads(self) -> bool:
        """True when this replica does."""

    def leader(self) -> str:
        """The URL of another one that does; empty when none is known."""

    async def news(self) -> None:
        """Until that has changed. It may end early."""


class Peer(msgspec.Struct, frozen=True):
    """How replicas know each other: what this one shows and believes now (None: plain HTTP), and the name that must be
    in the certificate of the one it asks.
    """

    trust: Callable[[], ssl.SSLContext | None]
    name: str = ""


class _UndecidedError(Exception):
    """The call was not decided, and can be sent again."""


class _LostError(Exception):
    """The call may have been decided, and there is no answer."""


class Forwarding:
    """One per service. `close` it at the end."""

    def __init__(self, leadership: Leadership, peer: Peer) -> None:
        self._leadership = leadership
        self._peer = peer
        self._session: aiohttp.ClientSession | None = None
        self._connections = Connections()
        self._quiet_until = 0.0

    async def answer(self, scope: Scope, body: bytes) -> Answer | None:
        """What the leader answers; None when this replica decides, or when there is nobody to ask in time."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        while not self._leadership.leads():
            url = self._leadership.leader()
            if url:
                try:
                    return await self._ask(url + scope["path"], body)
                except _LostError as lost:
                    return problem(503, f"dra-extender: the leader was lost while it decided: {lost}", close=True)
                except _UndecidedError as undecided:
                    self._report(url, undecided)
            left = deadline - clock()
            if left <= 0:
                return None
            await self._wait(min(left, PAUSE if url else left))
        return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await self._connections.closed()

    async def _ask(self, url: str, body: bytes) -> Answer:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        headers = {HEADER.decode(): "1", "Content-Type": "application/json"}
        trust = self._peer.trust()
        try:
            async with self._open().post(
                url,
                data=body,
                headers=headers,
                timeout=timeout,
                ssl=True if trust is None else trust,
                server_hostname=self._peer.name or None,
                allow_redirects=False,
            ) as reply:
                if reply.status == MISDIRECTED:
                    raise _UndecidedError("it does not lead")
                return Answer(await reply.read(), reply.status, close=True)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as refused:
            raise _UndecidedError(str(refused)) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as lost:
            raise _LostError(str(lost) or type(lost).__name__) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, socket_factory=self._connections.make)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return self._session

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._leadership.news()
        except TimeoutError:
            pass  # it is asked again

    def _report(self, url: str, why: _UndecidedError) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_SECONDS
            log.warning("the leader cannot be asked", leader=url, problem=str(why))


def is_forwarded(scope: Scope) -> bool:
    """True when another replica has passed the call on."""
    return any(name == HEADER for name, _ in scope["headers"])
