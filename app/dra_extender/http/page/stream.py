"""Server-sent events: the board as a stream of small messages, for one reader.

Promises: a few messages a second at most, each of bounded size; a heartbeat when there is nothing to say, so that the
connection of a reader who takes nothing is noticed. A stream ends after `LIFE` seconds, so that whether its reader may
still read is judged again when it comes back; it then gets only what it has not heard of.
Rules: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dra_extender.http.page.board import Batch, Reader
from dra_extender.http.page.feed import Feed

BEAT: Final = 10.0
"""Seconds after which a heartbeat comes when nothing else has."""
GAP: Final = 0.2
"""Seconds between two messages, once a reader is up to date."""
PARTS: Final = 250
"""In one message."""
LIFE: Final = 60.0

_ID: Final = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})")


class Hello(msgspec.Struct):
    """The first message. `resumed`: what the reader has heard before still counts. `now`: the time here."""

    resumed: bool
    now: str


def position(last_event_id: str) -> tuple[str, int | None]:
    """Epoch and version that a reader knows, from the last `id` that it got."""
    found = _ID.fullmatch(last_event_id)
    return (found[1], int(found[2])) if found else ("", None)


def event(name: str, data: bytes, id: str = "") -> bytes:
    """One message. JSON has no line breaks in it."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


async def messages(feed: Feed, last_event_id: str) -> AsyncGenerator[bytes, None]:
    """The stream of one reader."""
    news = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = loop.time() + LIFE
    with feed.reader(*position(last_event_id), news.set) as reader:
        yield event("hello", msgspec.json.encode(Hello(reader.resumed, datetime.now(UTC).isoformat())))
        while loop.time() < end and not feed.closing.is_set():
            news.clear()
            if reader.is_behind:
                message, behind = _parts(feed, reader)
                yield message
                await asyncio.sleep(0 if behind else GAP)
            elif not await _happens(news, feed.closing, BEAT):
                yield b": still here\n\n"


def _parts(feed: Feed, reader: Reader) -> tuple[bytes, int]:
    """What comes next, and how many parts come later. Only who has heard of everything knows a version of the board."""
    version = feed.board.version
    batch: Batch = reader.take(PARTS)
    data = b'{"put":[%b],"drop":%b,"behind":%d}' % (
        b",".join(batch.put),
        msgspec.json.encode(batch.drop),
        batch.behind,
    )
    return event("parts", data, "" if batch.behind else f"{feed.epoch}-{version}"), batch.behind


async def _happens(news: asyncio.Event, closing: asyncio.Event, seconds: float) -> bool:
    """True when either happens in time."""
    waits = [asyncio.ensure_future(event.wait()) for event in (news, closing)]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


class EventStream(StreamingResponse):
    """The messages as an answer."""

    def __init__(self, content: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        self._content = content
        super().__init__(content, headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._content):
            await super().__call__(scope, receive, send)
