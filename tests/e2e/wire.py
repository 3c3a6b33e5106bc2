"""A reverse proxy with TLS that sees every exchange, and can hold, answer or fail it: between scheduler and extender,
and between extender and API server.

`Wire` promises: without rules it passes everything on unchanged (watches as a stream); a caller that hangs up does not
stop the exchange; `log` has every exchange in the order of its arrival.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import web

from tests.support.leftovers import goodbyes
from tests.support.patience import LONGEST

_PER_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade"}


@dataclass
class Exchange:
    """One request, and its reply as soon as there is one."""

    method: str
    path: str
    body: bytes
    status: int = 0
    reply: bytes = b""
    sent: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def verb(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def answer(self) -> Any:
        return msgspec.json.decode(self.reply)

    @property
    def pod(self) -> str:
        """namespace/name of the pod that a call of kube-scheduler is about."""
        call = self.json
        if "PodName" in call:
            return f"{call['PodNamespace']}/{call['PodName']}"
        meta = call["Pod"]["metadata"]
        return f"{meta['namespace']}/{meta['name']}"


Rule = Callable[[Exchange], Awaitable[web.Response | None]]
"""Called for every exchange, before it is passed on or before its reply is; what it returns is the reply instead."""


class Wire:
    """Start it inside a running loop; `url` is where it listens, `target` where it passes things on to."""

    def __init__(self, target: str, serving: ssl.SSLContext, asking: ssl.SSLContext) -> None:
        self.target = target
        self.log: list[Exchange] = []
        self.before: list[Rule] = []
        self.after: list[Rule] = []
        self.watches_flow = asyncio.Event()
        self.watches_flow.set()
        self.url = ""
        self._serving = serving
        self._asking = asking

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=self._asking, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=130, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._serving)
        await site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._session.close()
        await self._runner.cleanup()
        await goodbyes()

    @contextmanager
    def rule(self, before: Rule | None = None, after: Rule | None = None) -> Iterator[None]:
        """The rule is in force inside the block."""
        places = [(self.before, before), (self.after, after)]
        for rules, rule in places:
            if rule is not None:
                rules.append(rule)
        try:
            yield
        finally:
            for rules, rule in places:
                if rule is not None:
                    rules.remove(rule)

    def calls(self, verb: str, pod: str) -> list[Exchange]:
        """The calls of kube-scheduler for a pod, oldest first."""
        return [exchange for exchange in list(self.log) if exchange.verb == verb and exchange.pod == pod]

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(request.method, request.path, await request.read())
        if "watch" in request.query:
            return await self._stream(request)
        self.log.append(exchange)
        for rule in list(self.before):
            if (instead := await rule(exchange)) is not None:
                return instead
        try:
            async with self._session.request(
                request.method,
                self.target + request.raw_path,
                data=exchange.body or None,
                headers=_onward(request.headers),
            ) as answer:
                exchange.status, exchange.reply = answer.status, await answer.read()
                headers = _onward(answer.headers)
        except aiohttp.ClientError:
            exchange.status = 502
            return web.Response(status=502)
        finally:
            exchange.sent.set()
        for rule in list(self.after):
            if (instead := await rule(exchange)) is not None:
                return instead
        return web.Response(status=exchange.status, body=exchange.reply, headers=headers)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        async with self._session.request(
            request.method, self.target + request.raw_path, headers=_onward(request.headers)
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_onward(answer.headers))
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await self.watches_flow.wait()
                    await response.write(chunk)
            except (ConnectionError, aiohttp.ClientError):
                pass  # one side is gone; the end of the stream tells the other
            return response


def _onward(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _PER_HOP}


def ask(url: str, trust: ssl.SSLContext, body: str) -> tuple[int, bytes]:
    """Status and body of the answer to one POST, on a connection of its own and past all wires."""
    where = urlsplit(url)
    connection = http.client.HTTPSConnection(where.netloc, context=trust, timeout=LONGEST)
    try:
        connection.request("POST", where.path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
