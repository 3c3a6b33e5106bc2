"""The sockets of one HTTP session, from when they are made until they are closed.

aiohttp closes a connection that is no longer wanted, that of a watch which ends for example, and forgets it. With TLS
that lasts until the other side has said goodbye, too, and whoever closes the session does not wait for it: an event
loop that ends then leaves connections open. `Connections` promises that after `closed` none of its sockets is open.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from weakref import WeakSet

_LONGEST = 5.0
"""Seconds after which `closed` returns in any case; what is stuck is ended by its event loop after half a minute."""
_OPTIONS = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))


class Connections:
    """Give `make` to the session as its socket factory; await `closed` when the session has been closed."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket that notices within half a minute that the other side is gone, even while a watch is silent."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _OPTIONS:
            if hasattr(socket, option):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Return when all sockets are closed. What we had to say has been said: the other side is not waited for."""
        for connection in self._open():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was quicker
        deadline = asyncio.get_running_loop().time() + _LONGEST
        while self._open() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.001)

    def _open(self) -> list[socket.socket]:
        return [connection for connection in self._made if connection.fileno() != -1]
