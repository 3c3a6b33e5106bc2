"""The routes of the page: its files, and its updates as server-sent events.

Promises of the files: they contain no cluster data, so they need no token; the content security policy lets a browser
load and run only these files, also if a name in the cluster contains HTML.

Promises of the events (https://html.spec.whatwg.org/multipage/server-sent-events.html): at most a few messages a
second, each of bounded size; a heartbeat when there is nothing to send, so a dead connection is detected. A stream ends
after `LIFE` seconds: the subscriber reconnects, is authorized again, and gets only what it has not received.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, HTTPException, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dra_extender.http.authorization import DENIALS
from dra_extender.http.page.updates import PageUpdates, Subscriber

FOLDER: Final = "static"
DOCUMENT: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
BEAT: Final = 10.0
"""Seconds without a message until a heartbeat."""
GAP: Final = 0.2
"""Seconds between two messages, once a subscriber is up to date."""
PARTS: Final = 250
"""Parts in one message."""
LIFE: Final = 60.0
MOST_SUBSCRIBERS: Final = 32

_ID: Final = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})")


@cache
def page_files() -> dict[str, Response]:
    """All files by path. Read once."""
    found: dict[str, Response] = {}
    for entry in (Path(__file__).parent / FOLDER).iterdir():
        kind = _TYPES.get(entry.suffix.removeprefix("."))
        if kind is not None:
            content = entry.read_bytes()
            headers = HEADERS | {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}
            path = "/" if entry.name == DOCUMENT else f"/page/{entry.name}"
            found[path] = Response(content, headers=headers, media_type=kind)
    return found


def page_router(updates: PageUpdates) -> APIRouter:
    """`/`, its files, and `/insight/events`."""
    router = APIRouter()
    for path in page_files():
        router.routes.append(Route(path, _file))

    @router.get(
        "/insight/events",
        tags=["insight"],
        response_class=Response,
        responses=DENIALS | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        last_event_id: Annotated[str, Header(description="`id` of the last message that was received")] = "",
    ) -> Response:
        """The contents of the page as server-sent events: first everything, then changes. The format belongs to the
        page of the same version and may change.
        """
        if updates.state.subscribers >= MOST_SUBSCRIBERS:
            raise HTTPException(503, f"{MOST_SUBSCRIBERS} pages are open already", {"Retry-After": "10"})
        stream = messages(updates, last_event_id)
        await anext(stream)  # it subscribes
        return EventStream(stream)

    return router


async def _file(request: Request) -> Response:
    found = page_files()[request.url.path]
    tag = found.headers["ETag"]
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=HEADERS | {"ETag": tag})
    return found


def event(name: str, data: bytes, id: str = "") -> bytes:
    """One message. `data`: JSON, which has no line breaks."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


async def messages(updates: PageUpdates, last_event_id: str) -> AsyncGenerator[bytes, None]:
    """The stream of one subscriber. It subscribes when its first message is taken, which is empty."""
    found = _ID.fullmatch(last_event_id)
    epoch, since = (found[1], int(found[2])) if found else ("", None)
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = loop.time() + LIFE
    with updates.subscriber(epoch, since, changed.set) as subscriber:
        yield b""
        # `resumed`: parts of an earlier connection are still valid.
        hello = {"resumed": subscriber.resumed, "now": datetime.now(UTC).isoformat()}
        yield event("hello", msgspec.json.encode(hello))
        while loop.time() < end and not updates.closed:
            changed.clear()
            if subscriber.is_behind:
                message, behind = _parts(updates, subscriber)
                yield message
                await asyncio.sleep(0 if behind else GAP)
            else:
                try:
                    async with asyncio.timeout(min(BEAT, max(0.0, end - loop.time()))):
                        await changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"


def _parts(updates: PageUpdates, subscriber: Subscriber) -> tuple[bytes, int]:
    """The next message, and the number of parts that follow. Only the last message of an update has an id."""
    version = updates.state.version
    batch = subscriber.take(PARTS)
    data = b'{"put":[%b],"drop":%b,"behind":%d}' % (b",".join(batch.put), msgspec.json.encode(batch.drop), batch.behind)
    return event("parts", data, "" if batch.behind else f"{updates.epoch}-{version}"), batch.behind


class EventStream(StreamingResponse):
    """The messages as a response."""

    def __init__(self, content: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        self._content = content
        super().__init__(content, headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._content):
            await super().__call__(scope, receive, send)
