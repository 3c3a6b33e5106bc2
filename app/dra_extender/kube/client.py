"""One HTTP session with the API server: raw bytes in and out.

`KubeClient` promises that every call ends within its timeout (three times that while new credentials are slow), with
the body of a 2xx answer or with one of `api.errors`, which distinguish a request that was not carried out from one
whose outcome is unknown. What is refused (429) is repeated with jitter as long as the time allows, unless the caller
forbids it; nothing else is ever sent twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import msgspec

from dra_extender.api.errors import (
    ApiError,
    FailureStatus,
    OutcomeUnknownError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
    error_from_status,
)
from dra_extender.kube.credentials import FORWARDED_TOKEN, ClientSettings, Credentials, load

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


JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Params = Mapping[str, str]
T = TypeVar("T")

_UNAUTHORIZED = 401
WATCH_SILENCE = 120.0
"""Seconds without a byte after which a watch counts as dead; bookmarks come about once a minute."""


_status = msgspec.json.Decoder(FailureStatus)


class KubeClient:
    """All traffic with one API server. Make it with `connect`, end it with `close` or `async with`."""

    def __init__(self, credentials: Credentials, settings: ClientSettings) -> None:
        self.credentials = credentials
        self.server = credentials.server
        self._timeout = settings.timeout
        self._token_headers = ("Authorization", *[FORWARDED_TOKEN] * settings.forwards_token)
        self._connections, url = Connections(), urlsplit(credentials.server)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.connections,
                ssl=credentials.ssl,
                socket_factory=self._connections.make,
                keepalive_timeout=60,
            ),
            # Compressing lists costs the API server more than a cluster's network does.
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": settings.user_agent},
            read_bufsize=2**18,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
            # Looking for a proxy (HTTPS_PROXY, NO_PROXY), and for a .netrc, costs two hops to a thread per request.
            trust_env=url.scheme in getproxies() and not proxy_bypass(url.hostname or ""),
        )

    @classmethod
    async def connect(cls, settings: ClientSettings) -> KubeClient:
        """Load credentials; nothing is sent yet. Raises CredentialsError."""
        return cls(await load(settings), settings)

    async def close(self) -> None:
        """End all requests and connections; none is left open when it returns."""
        self.credentials.close()
        await self._session.close()
        await self._connections.closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(
        self, path: str, params: Params | None = None, *, timeout: float | None = None, most: int | None = None
    ) -> bytes:
        """With `most`, an answer of more bytes raises TooLargeError before it is all there."""
        return await self.request("GET", path, params=params, timeout=timeout, most=most)

    async def create(self, path: str, body: bytes, *, timeout: float | None = None) -> bytes:
        """POST. A 429 goes to the caller, who decides whether the object is still wanted."""
        return await self.request("POST", path, body=body, timeout=timeout, repeat_when_throttled=False)

    async def replace(self, path: str, body: bytes, *, timeout: float | None = None) -> bytes:
        """PUT; the resourceVersion in the body is the precondition."""
        return await self.request("PUT", path, body=body, timeout=timeout)

    async def patch(self, path: str, body: bytes, kind: str = MERGE_PATCH, *, timeout: float | None = None) -> bytes:
        """PATCH with one of the patch content types; preconditions are in the body's metadata."""
        return await self.request("PATCH", path, body=body, content_type=kind, timeout=timeout)

    async def delete(self, path: str, body: bytes | None = None, *, timeout: float | None = None) -> bytes:
        """DELETE; the body may be DeleteOptions with preconditions."""
        return await self.request("DELETE", path, body=body, timeout=timeout)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float | None = None,
        repeat_when_throttled: bool = True,
        most: int | None = None,
    ) -> bytes:
        """One request, repeated only when refused with 429. Raises ApiError and its subclasses, nothing else."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout if timeout is None else timeout)
        sent: dict[str, Any] = {"params": params, "data": body}
        if body is not None:
            sent["headers"] = {"Content-Type": content_type}
        attempt = 0
        while True:
            try:
                left = max(deadline - loop.time(), 0.01)
                return await self._once(method, path, sent, left, most)
            except ThrottledError as refusal:
                pause = refusal.retry_after * random.uniform(1.0, 1.5) * (1 + attempt / 2)
                if not repeat_when_throttled or loop.time() + pause >= deadline:
                    raise
                attempt += 1
                await asyncio.sleep(pause)

    async def stream(
        self, path: str, params: Params, *, on_open: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[bytes]:
        """The lines of a watch as they come, until the server ends it. Raises ApiError.

        `on_open` is called when the server has accepted.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=WATCH_SILENCE)
        with self._translated("GET", path):
            options = await self._options({"params": params}, timeout)
            async with self._session.request("GET", self.credentials.server + path, **options) as reply:
                if reply.status // 100 != 2:
                    raise _failure(reply.status, reply.headers, await reply.read())
                on_open()
                async for line in _lines(reply.content):
                    yield line

    async def _once(self, method: str, path: str, sent: Mapping[str, Any], timeout: float, most: int | None) -> bytes:
        with self._translated(method, path):
            for refreshed in (False, True):
                options = await self._options(sent, aiohttp.ClientTimeout(total=timeout))
                async with self._session.request(method, self.credentials.server + path, **options) as reply:
                    data = await (reply.read() if most is None else _read(reply, most))
                if reply.status != _UNAUTHORIZED or refreshed:
                    break
                # Refused before anything was done: a token may just have expired.
                async with asyncio.timeout(timeout):
                    await self.credentials.refresh()
        if reply.status // 100 != 2:
            raise _failure(reply.status, reply.headers, data)
        return data

    @contextmanager
    def _translated(self, method: str, path: str) -> Iterator[None]:
        """What goes wrong on the way to the server, as an ApiError."""
        try:
            yield
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            text = f"{method} {path}: {_said(problem)}"
            # The class depends on whether the request can have reached the server.
            if isinstance(problem, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
                raise UnreachableError(0, "Unreachable", text) from None
            reason = "Timeout" if isinstance(problem, TimeoutError) else "ConnectionLost"
            raise OutcomeUnknownError(0, reason, text) from None
        except (RuntimeError, AssertionError):
            # aiohttp raises these when the session is closed.
            if self._session.closed:
                raise UnreachableError(0, "Closed", f"{method} {path}: this client is closed") from None
            raise

    async def _options(self, sent: Mapping[str, Any], timeout: aiohttp.ClientTimeout) -> dict[str, Any]:
        """Raises TimeoutError if looking for new credentials takes as long."""
        async with asyncio.timeout(timeout.total or self._timeout):
            authorization = await self.credentials.authorization()
        tokens = dict.fromkeys(self._token_headers, authorization) if authorization else {}
        return {
            **sent,
            "timeout": timeout,
            "headers": {**tokens, **sent.get("headers", {})},
            "server_hostname": self.credentials.server_hostname,
            "proxy": self.credentials.proxy,
            "allow_redirects": False,
        }


def decoded(kind: type[T], data: bytes, what: str) -> T:
    """What the server has answered. Raises ApiError: a proxy may answer while the API server is down."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError) as problem:
        raise ApiError(0, "Malformed", f"{what}: {problem}") from None


async def _read(reply: aiohttp.ClientResponse, most: int) -> bytes:
    """The whole body. Raises TooLargeError once there are more bytes than that, and the connection is closed."""
    parts, size = [], 0
    async for chunk in reply.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            raise TooLargeError(reply.status, "TooLarge", f"the answer has more than {most} bytes")
    return b"".join(parts)


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Complete lines of any length; a torn last line is dropped."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        head, newline, rest = chunk.partition(b"\n")
        parts.append(head)
        if not newline:
            continue
        yield b"".join(parts)
        *whole, tail = rest.split(b"\n")
        for line in whole:
            yield line
        parts = [tail]


def _failure(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    if status < 400:
        where = headers.get("Location", "nowhere")
        text = f"HTTP {status}, a redirect to {where}: what answers is not the API server, correct its URL or the proxy"
        return error_from_status(status, "Redirected", text)
    try:
        said = _status.decode(body)
    except (msgspec.DecodeError, ValueError):
        said = FailureStatus(message=body[:200].decode("utf-8", "replace").strip())
    retry_after = _seconds(headers.get("Retry-After"), said.details)
    text = said.message or said.detail
    return error_from_status(status, said.reason, text, said.details, retry_after=retry_after)


def _seconds(header: str | None, details: Mapping[str, Any] | None) -> float | None:
    """Retry-After in seconds, of the header or of the Status; None when neither says."""
    for value in (header, (details or {}).get("retryAfterSeconds")):
        try:
            seconds = float(value) if value is not None else 0.0
        except (TypeError, ValueError):
            continue
        if 0 < seconds < float("inf"):
            return seconds
    return None


def _said(problem: BaseException) -> str:
    """In the words of the operating system if the connection is refused or the name has no address."""
    if not isinstance(problem, aiohttp.ClientConnectorError) or isinstance(problem, aiohttp.ClientSSLError):
        return str(problem) or type(problem).__name__
    cause = problem.os_error
    number = cause.errno or 0
    told = os.strerror(number) if number > 0 else cause.strerror or str(cause)
    return f"cannot connect to {problem.host}:{problem.port}: {told}"
