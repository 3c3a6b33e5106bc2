"""An HTTP server for one ASGI application on one socket, inside an event loop that others use as well.

`HttpServer` promises: `url` is known before the first request; port 0 picks a free port; `stop` closes the listener and
idle connections at once, lets running requests finish within the grace period, and leaves nothing behind. It installs
no signal handlers.

`Listener` promises: it accepts one connection per turn of the event loop, so other work goes on however many clients
connect at once. It runs at most `HANDSHAKES` TLS handshakes at a time; when others wait, it closes a handshake that
takes longer than `HANDSHAKE_PATIENCE`.

HTTP/1.1 itself is uvicorn's: `uvicorn.Config` makes the protocol objects, `ServerState` knows their connections and
tasks. `uvicorn.Server` is not used: it accepts the whole backlog in one turn, and polls every 0.1 s.

Certificates of the listener and of calls to other replicas may change while in use. Promises: new connections use the
newest usable content of the files; if authorities are given, the other side must show a certificate from them; files
that cannot be used (half written, mismatched) leave the previous ones in force.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from dra_extender.http.protocol import ConnectionLimitReport, ConnectionLimits, limited

log = structlog.get_logger(__name__)

HANDSHAKES: Final = 64
"""TLS handshakes at a time: if all of them continue in one turn, the event loop is busy for some ten milliseconds."""
HANDSHAKE_SECONDS: Final = 10.0
HANDSHAKE_PATIENCE: Final = 0.25
"""Seconds that a handshake may take while other clients wait."""
SILENT: Final = 256
"""Clients that may be connected before they begin their TLS handshake. One more ends the oldest of them."""
RETRY_SECONDS: Final = 1.0
"""Pause before the next `accept` after the process ran out of file descriptors."""
GRACE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01


TLS = Callable[[], ssl.SSLContext]
"""The context of the next connection."""


@dataclass(eq=False)
class Listener:
    """Accepts connections on a listening, non-blocking socket, which the caller owns. Use inside a running loop."""

    _listening: socket.socket
    _make_protocol: Callable[[], asyncio.Protocol]
    _tls: TLS | None

    def __post_init__(self) -> None:
        self._handshakes: dict[asyncio.Task[None], float] = {}
        """Running handshakes with their start times, oldest first."""
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        """Clients that have sent nothing, oldest first, with the end of their time. They have no slot."""
        self._speaking = asyncio.Queue[socket.socket]()
        """Clients that wait for a slot."""
        self._accepting = asyncio.create_task(self._accept(), name="accept connections")
        self._negotiating = asyncio.create_task(self._negotiate(), name="begin handshakes")

    def close(self) -> None:
        """Accept no more connections; established ones stay. The caller may close the socket at once."""
        asyncio.get_running_loop().remove_reader(self._listening)  # the loop would keep watching the descriptor
        self._accepting.cancel()
        self._negotiating.cancel()
        for client in [*self._silent]:
            self._drop(client)
        while not self._speaking.empty():
            self._speaking.get_nowait().close()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._accepting, self._negotiating, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._speaking.qsize() >= HANDSHAKES:
                await self._speaking.join()  # the others wait in the backlog of the system
            client_waits = asyncio.Event()
            loop.add_reader(self._listening, client_waits.set)
            await client_waits.wait()
            loop.remove_reader(self._listening)
            try:
                accepted, _ = self._listening.accept()  # cancelling loop.sock_accept could lose an accepted socket
            except BlockingIOError:
                continue  # the client left
            except OSError as problem:
                log.warning("cannot accept connections for now", problem=str(problem))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            accepted.setblocking(False)
            if self._tls is None:
                self._begin(accepted)
            else:
                loop.add_reader(accepted, self._speaks, accepted)
                self._silent[accepted] = loop.call_later(HANDSHAKE_SECONDS, self._drop, accepted)
                if len(self._silent) > SILENT:
                    self._drop(next(iter(self._silent)))

    def _speaks(self, client: socket.socket) -> None:
        self._forget(client)
        self._speaking.put_nowait(client)

    def _drop(self, client: socket.socket) -> None:
        self._forget(client)
        client.close()

    def _forget(self, client: socket.socket) -> None:
        """It is not silent any more, or its time is over."""
        self._silent.pop(client).cancel()
        asyncio.get_running_loop().remove_reader(client)

    async def _negotiate(self) -> None:
        """Begin the handshakes of the clients that have sent something, first come, first served."""
        while True:
            client = await self._speaking.get()
            try:
                await self._handshake_slot()
            except asyncio.CancelledError:
                client.close()
                raise
            self._begin(client)
            self._speaking.task_done()

    async def _handshake_slot(self) -> None:
        """Wait until one more handshake may run; cancel the oldest one when it is over its time."""
        now = asyncio.get_running_loop().time
        while len(self._handshakes) >= HANDSHAKES:
            oldest, began = next(iter(self._handshakes.items()))
            left = began + HANDSHAKE_PATIENCE - now()
            if left > 0:
                await asyncio.wait(self._handshakes, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                del self._handshakes[oldest]
                oldest.cancel()

    def _begin(self, accepted: socket.socket) -> None:
        def end(handshake: asyncio.Task[None]) -> None:
            self._handshakes.pop(handshake, None)
            if handshake.cancelled():  # perhaps before its first step
                accepted.close()

        task = asyncio.create_task(self._connect(accepted), name="connection")
        self._handshakes[task] = asyncio.get_running_loop().time()
        task.add_done_callback(end)

    async def _connect(self, accepted: socket.socket) -> None:
        """Finish the handshake, if any, and connect a new protocol object."""
        loop = asyncio.get_running_loop()
        seconds = HANDSHAKE_SECONDS if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(
                self._make_protocol, accepted, ssl=self._tls and self._tls(), ssl_handshake_timeout=seconds
            )
        except OSError:
            accepted.close()  # the client left, does not speak TLS, is not trusted, or takes too long


class HttpServer:
    """One application on one address. Raises OSError, naming the address, when it cannot listen there."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        tls: TLS | None = None,
        limits: ConnectionLimits | None = None,
        report: ConnectionLimitReport | None = None,
    ) -> None:
        """`report` counts and logs connections over the limit."""
        limits = limits or ConnectionLimits()
        self._socket = _bind(host, port)
        self._tls = tls
        self.port: int = self._socket.getsockname()[1]
        shown = "127.0.0.1" if host in ("0.0.0.0", "") else f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{shown}:{self.port}"
        self.state = ServerState()
        self._config = uvicorn.Config(
            app,
            http=limited(limits, report),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, round(limits.idle_seconds)),
        )
        self._listener: Listener | None = None

    async def start(self) -> None:
        self._config.load()
        self._listener = Listener(self._socket, self._make_protocol, self._tls)

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Stop listening, and wait up to `grace` seconds for running requests. With 0, end at once, as in a crash."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
        self._socket.close()
        for connection in list(self.state.connections) if grace else ():
            connection.shutdown()
        while (self.state.connections or self.state.tasks) and clock() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        for connection in list(self.state.connections):
            connection.transport.abort()
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self._config.http_protocol_class(  # type: ignore[call-arg] # as uvicorn calls it
            config=self._config, server_state=self.state, app_state={}
        )
        return made


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


class Certificates:
    """Certificate, key, and the authorities of the other side, if given, for calls to other replicas. The next
    connection uses `newest`. Call `check` every few seconds.
    """

    def __init__(self, certificate: Path, key: Path, authorities: Path | None = None) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._stamp = self._stamps()
        self.newest = self._load()
        """A context with the newest usable content."""

    def _load(self) -> ssl.SSLContext:
        """A context with the current content of the files. Raises OSError or ssl.SSLError."""
        context = ssl.create_default_context(cafile=self._authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        return context

    def check(self) -> bool:
        """Reload changed files. True when they were reloaded; unusable files are logged."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return False
            self.newest = self._load()
        except (OSError, ssl.SSLError) as problem:
            log.warning("new certificate cannot be used, the old one stays in use", problem=str(problem))
            return False
        self._stamp = stamp
        log.info("certificate reloaded", file=str(self._certificate))
        return True

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        files = (self._certificate, self._key, *((self._authorities,) if self._authorities else ()))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in files))


class ServerCertificates(Certificates):
    """For a listener. With authorities, clients must show a certificate."""

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        # A ticket would let a client resume a session that the current authorities would refuse.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
