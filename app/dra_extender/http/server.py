"""Uvicorn on a socket, inside an event loop that is not its own.

`HttpServer` promises: `url` is known before the first request, port 0 picks a free port, `stop` first closes idle
connections and the listener, lets running requests finish within the grace period, and leaves nothing behind. Signals
are left to the process that uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from dra_extender.http.crowds import Crowds
from dra_extender.http.listener import Listener
from dra_extender.http.protocol import ConnectionLimits, guarded


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on these sockets with a listener of our own: that of the loop takes all who come at once."""
        config = self.config
        await self.lifespan.startup()

        def make_protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        self.servers = [Listener(item, make_protocol, config.ssl) for item in sockets or ()]  # type: ignore[misc]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """One application on one address."""

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        keep_alive: int = 120,
        grace: float = 30.0,
        limits: ConnectionLimits | None = None,
        crowds: Crowds | None = None,
    ) -> None:
        self._socket = _bind(host, port)
        self._tls = tls
        self.port: int = self._socket.getsockname()[1]
        shown = "127.0.0.1" if host in ("0.0.0.0", "") else f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{shown}:{self.port}"
        self._server = _Server(
            uvicorn.Config(
                app,
                http=guarded(limits or ConnectionLimits(idle_seconds=keep_alive), crowds),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=keep_alive,
                timeout_graceful_shutdown=max(1, round(grace)),
                ssl_context_factory=(lambda _config, _default: tls) if tls else None,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Returns when connections are accepted."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"http {self.url}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError(f"{self.url}: the server ended before it started")
            await asyncio.sleep(0.005)

    async def stop(self, grace: float | None = None) -> None:
        """Stop listening and wait for running requests, no longer than the grace period or these seconds."""
        if grace is not None:
            self._server.config.timeout_graceful_shutdown = math.ceil(grace)
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()

    async def kill(self) -> None:
        """Stop at once, as a crash would: running requests get no answer."""
        self._server.force_exit = True
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for task in list(self._server.server_state.tasks):
            task.cancel()
        await self.stop()


def _bind(host: str, port: int) -> socket.socket:
    """Raises OSError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(1024)
        made.setblocking(False)
    except OSError as problem:
        made.close()
        raise OSError(problem.errno, f"cannot listen on {host}:{port}: {problem.strerror}") from None
    return made
