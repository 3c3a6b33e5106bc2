"""An API server that answers as a test tells it, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web


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


def _not_found(path: str) -> dict[str, Any]:
    """As the API server says it of an object in a namespace, and of paths that it does not serve."""
    _, kind, name, *_ = [*path.partition("/namespaces/")[2].split("/"), "", ""]
    details = {"kind": kind, "name": name} if name else {}
    return {"kind": "Status", "code": 404, "reason": "NotFound", "details": details}


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
            return web.json_response(_not_found(request.path), status=404)
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if callable(answer):
            made = await answer(request)
            assert isinstance(made, web.StreamResponse)
            return made
        status, body, *headers = answer
        return web.json_response(body, status=status, headers=headers[0] if headers else None)


Lines = Callable[..., Callable[[web.Request], Any]]


@asynccontextmanager
async def serving() -> AsyncIterator[ScriptedServer]:
    scripted, app = ScriptedServer(), web.Application()
    app.router.add_route("*", "/{tail:.*}", scripted.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scripted.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield scripted
    await runner.cleanup()
