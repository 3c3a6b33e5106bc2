"""Accepting connections, one in a turn of the event loop.

Promises: however many clients come at once, everything else gets its turn between any two of them. Few negotiate TLS
at the same time, the others wait; a client that takes its time is closed when others wait for its place.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

HANDSHAKES: Final = 64
"""Connections that are not made yet: when all of them go on at once, the loop is busy for some ten milliseconds."""
HANDSHAKE_SECONDS: Final = 10.0
PATIENCE: Final = 0.5
"""Seconds in which a handshake is over, if others wait."""
RETRY_SECONDS: Final = 1.0
"""Until accepting is tried again, when files have run out."""


class Listener:
    """On a socket that listens and does not block, which remains the caller's. Has what uvicorn wants of a server."""

    def __init__(
        self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], float] = {}
        """Those under way and when they began, the first one first."""
        self._accepting = asyncio.create_task(self._accept(), name="accept connections")

    def close(self) -> None:
        """Accept no more. Connections that are made stay. The socket may be closed at once."""
        asyncio.get_running_loop().remove_reader(self._listening)  # the loop would go on watching its number
        self._accepting.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Until nothing of it runs any more."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                made, _ = await loop.sock_accept(self._listening)
            except OSError as problem:
                log.warning("no connection can be accepted for now", problem=str(problem))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._begin(made)
            await asyncio.sleep(0)  # sock_accept may have had one at hand

    async def _room(self) -> None:
        """Until there is room for one more."""
        now = asyncio.get_running_loop().time
        while len(self._handshakes) >= HANDSHAKES:
            oldest, began = next(iter(self._handshakes.items()))
            left = began + PATIENCE - now()
            if left > 0:
                await asyncio.wait(self._handshakes, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                del self._handshakes[oldest]
                oldest.cancel()

    def _begin(self, made: socket.socket) -> None:
        task = asyncio.create_task(self._connect(made), name="connection")
        self._handshakes[task] = asyncio.get_running_loop().time()
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _connect(self, made: socket.socket) -> None:
        """Hand the connection to a protocol of its own, once it can be used."""
        loop = asyncio.get_running_loop()
        seconds = HANDSHAKE_SECONDS if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(self._make_protocol, made, ssl=self._tls, ssl_handshake_timeout=seconds)
        except (OSError, asyncio.CancelledError):
            made.close()  # the client has gone, does not speak TLS, is not to be trusted, or takes too long
