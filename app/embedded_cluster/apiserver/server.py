"""The embedded API server: an async context manager that serves the Kubernetes HTTP API on a socket.

    async with EmbeddedAPIServer() as server:
        server.write_kubeconfig(path)

Everything runs in the event loop that entered it. Faults, the audit and the in-process store are attributes;
leaving the context ends all watches and closes the socket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml
from aiohttp import web
from multidict import CIMultiDict

from embedded_cluster.apiserver import kinds
from embedded_cluster.apiserver.access import Access, AuditLog
from embedded_cluster.apiserver.faults import ConnectionDropped, Faults
from embedded_cluster.apiserver.garbage import Garbage
from embedded_cluster.apiserver.handler import Handling
from embedded_cluster.apiserver.requests import APIResponse, Incoming, Streaming, failure
from embedded_cluster.apiserver.reviews import AccessReviews
from embedded_cluster.apiserver.statuses import JSON, StatusError
from embedded_cluster.apiserver.storage import Storage
from embedded_cluster.apiserver.store import Store
from embedded_cluster.apiserver.strategy import Clock
from embedded_cluster.apiserver.verbs import ObjectVerbs

_HOST: Final = "127.0.0.1"
MOST_BODY: Final = 3 * 1024 * 1024
LINES_AT_ONCE: Final = 256
FIRST_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease", "dra-system")


class EmbeddedAPIServer:
    """One API server with its own storage.

    `versions`: those of resource.k8s.io to serve. `seed` makes names, UIDs and faults repeatable. `window`: events kept
    per kind for resuming watches.
    """

    def __init__(
        self,
        port: int = 0,
        versions: Iterable[str] = ("v1",),
        *,
        access: Access | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        window: int = 20_000,
    ) -> None:
        self._port = port
        self.bookmark_interval = 10.0
        """Seconds between bookmarks of a watch."""
        self.collects_garbage = True
        """False keeps the dependents of deleted owners, and the objects of deleted namespaces; read at the start."""
        self.registry = kinds.registry(versions)
        self.storage = Storage(self.registry, window)
        self.verbs = ObjectVerbs(self.storage, self.registry, clock=clock, seed=seed)
        self.store = Store(self.registry, self.storage, self.verbs)
        self.garbage = Garbage(self.storage, self.registry, self.verbs)
        self.access = access or Access()
        self.faults = Faults(seed or 0)
        self.audit = AuditLog()
        reviews = AccessReviews(self.access, self.store, self.verbs.clock)
        self._handling = Handling(self.verbs, self.garbage, self.access, reviews, self.faults, self.audit)
        self._watches: dict[Streaming, web.BaseRequest] = {}
        self._runner: web.ServerRunner | None = None
        self.faults.connect(self._end_watches, self._tell_watches)
        for name in FIRST_NAMESPACES:
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    @property
    def url(self) -> str:
        """Where clients reach the server."""
        return f"http://{_HOST}:{self._port}"

    async def __aenter__(self) -> Self:
        server = web.Server(self._serve, request_factory=_make_request, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _HOST, self._port, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        if self.collects_garbage:
            self.garbage.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.garbage.stop()
        for streaming in tuple(self._watches):
            streaming.watcher.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, token: str = "") -> JSON:
        """A kubeconfig for this server as a document."""
        user: JSON = {"token": token} if token else {}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "embedded", "user": user}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": "default"}}
            ],
            "current-context": "embedded",
        }

    def write_kubeconfig(self, path: str | Path, token: str = "") -> Path:
        """Write a kubeconfig that kubectl and kubernetes-asyncio can use."""
        target = Path(path)
        target.write_text(yaml.safe_dump(self.kubeconfig(token), sort_keys=False))
        return target

    # serving

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await request.read() if request.can_read_body else b""
        except web.HTTPRequestEntityTooLarge:
            return _response(_too_large())
        incoming = Incoming(request.method, request.rel_url.raw_path, request.query, request.headers, body)
        try:
            answer = await self._handling.handle(incoming)
        except ConnectionDropped:
            _abort(request)
            return web.Response(status=500)
        if isinstance(answer, APIResponse):
            return _response(answer)
        return await self._stream(request, answer)

    async def _stream(self, request: web.BaseRequest, streaming: Streaming) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._watches[streaming] = request
        try:
            await response.prepare(request)
            await self._pump(response, streaming)
            await response.write_eof()
        except ConnectionError:
            pass
        finally:
            streaming.watcher.close()
            del self._watches[streaming]
        return response

    async def _pump(self, response: web.StreamResponse, streaming: Streaming) -> None:
        """Send lines until the watch ends by itself, by its timeout or by its client."""
        watcher, plural = streaming.watcher, streaming.resource.kind.plural
        deadline = time.monotonic() + streaming.timeout
        next_bookmark = time.monotonic() + self.bookmark_interval
        while True:
            now = time.monotonic()
            if now >= deadline:
                return
            lines = await watcher.take(min(deadline, next_bookmark) - now)
            if lines and (lag := self.faults.lag_of(plural)):
                await asyncio.sleep(lag)
            if not lines and watcher.closed:
                return
            if not lines and streaming.bookmarks and time.monotonic() >= next_bookmark:
                watcher.bookmark(self.storage.revision)
            if time.monotonic() >= next_bookmark:
                next_bookmark = time.monotonic() + self.bookmark_interval
            lines = self.faults.repeated(plural, lines)
            for start in range(0, len(lines), LINES_AT_ONCE):
                await response.write(b"".join(lines[start : start + LINES_AT_ONCE]))

    def _end_watches(self, pattern: str, expired: bool) -> int:
        ended = 0
        for streaming, request in tuple(self._watches.items()):
            if fnmatchcase(streaming.resource.kind.plural, pattern):
                ended += 1
                if expired:
                    streaming.watcher.expire()
                else:
                    _abort(request)
        return ended

    def _tell_watches(self, pattern: str, line: bytes) -> int:
        told = [each for each in self._watches if fnmatchcase(each.resource.kind.plural, pattern)]
        for streaming in told:
            streaming.watcher.say(line)
        return len(told)


def _make_request(message, payload, protocol, writer, task) -> web.BaseRequest:  # type: ignore[no-untyped-def]
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=MOST_BODY
    )


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _response(answer: APIResponse) -> web.Response:
    headers = CIMultiDict({"Content-Type": answer.content_type, **answer.headers})
    for text in answer.warnings:
        headers.add("Warning", '299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return web.Response(body=answer.body, status=answer.code, headers=headers)


def _too_large() -> APIResponse:
    message = f"Request entity too large: limit is {MOST_BODY}"
    return failure(StatusError(413, "RequestEntityTooLarge", message, {}))
