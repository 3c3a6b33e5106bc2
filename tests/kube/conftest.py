"""A scripted API server on a real socket: tests say what it answers and look at what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest
from aiohttp import web

from app.kube.client import KubeClient
from app.kube.credentials import ClientSettings
from tests.support.patience import LONGEST


class Asked(msgspec.Struct, frozen=True):
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


Answer = web.StreamResponse | Callable[[web.Request], Any]


class ScriptedServer:
    """Answers each method and path from a queue; the last answer of a queue stays."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._answers: dict[tuple[str, str], list[Any]] = {}

    def on(self, method: str, path: str, *answers: Any, watch: bool = False) -> None:
        """`answers` are (status, body[, headers]) or coroutines of the request."""
        self._answers.setdefault((method + ("+watch" if watch else ""), path), []).extend(answers)

    def requests(self, method: str = "", path: str = "") -> list[Asked]:
        return [
            asked for asked in self.asked if (not method or asked.method == method) and (not path or asked.path == path)
        ]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(
            Asked(
                request.method, request.path, dict(request.query), dict(request.headers.items()), await request.read()
            )
        )
        suffix = "+watch" if request.query.get("watch") else ""
        queue = self._answers.get((request.method + suffix, request.path))
        if not queue:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if callable(answer):
            made = await answer(request)
            assert isinstance(made, web.StreamResponse)
            return made
        status, body, *headers = answer
        return web.json_response(body, status=status, headers=headers[0] if headers else None)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", scripted.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}"
    yield scripted
    await runner.cleanup()


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(ClientSettings(server=server.url, timeout=LONGEST)) as connected:
        yield connected


Lines = Callable[..., Callable[[web.Request], Any]]


@pytest.fixture
def watch_lines() -> Lines:
    """Makes the answer to a watch: these events, then the end of the stream (or silence with hold=True)."""

    def make(*events: Mapping[str, Any] | bytes, hold: bool = False, gate: asyncio.Event | None = None) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for event in events:
                if gate is not None:
                    await gate.wait()
                await response.write(event if isinstance(event, bytes) else msgspec.json.encode(event) + b"\n")
            if hold:
                await asyncio.sleep(3600)
            return response

        return answer

    return make
