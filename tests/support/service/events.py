"""The feed of the page as a program reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from dra_extender.service.service import Service
from tests.support.patience import LONGEST

Json = dict[str, Any]


class Events:
    """One connection, and what was heard on it. `id`: of the last message that has one."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self.reply = reply
        self.parts: dict[str, Json] = {}
        self.hello: Json = {}
        self.id = ""
        self.messages: list[Json] = []
        self._lines = reply.content

    async def hear(self) -> bool:
        """The next message. False at the end."""
        fields: dict[str, str] = {}
        while True:
            line = (await self._lines.readuntil(b"\n")).decode()
            if not line:
                return False
            if line == "\n":
                if "data" in fields:
                    break
                continue
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value
        self.id = fields.get("id", self.id)
        self._take(fields)
        return True

    def _take(self, fields: dict[str, str]) -> None:
        data = json.loads(fields["data"])
        self.messages.append(data)
        if fields["event"] == "hello":
            self.hello = data
            return
        self.parts |= {part["key"]: part for part in data["put"]}
        for key in data["drop"]:
            self.parts.pop(key, None)

    async def until(self, look: Callable[[], Any]) -> None:
        """Hear until it is true."""
        async with asyncio.timeout(LONGEST):
            while not look():
                assert await self.hear(), "the stream has ended"

    async def whole(self) -> None:
        """Read until all devices were counted and all parts arrived."""
        await self.until(lambda: self.parts.get("status", {}).get("complete") and not self.messages[-1].get("behind"))

    def devices(self) -> dict[str, str]:
        """State by pool/device."""
        found = {}
        for part in self.parts.values():
            if part["kind"] == "devices":
                for name, state, *_ in part["devices"]:
                    found[f"{part['pool']}/{name}"] = state
        return found


@asynccontextmanager
async def listening(service: Service, last_event_id: str = "", token: str = "") -> AsyncIterator[Events]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with (
        aiohttp.ClientSession(read_bufsize=2**22) as session,
        session.get(f"{service.insight_url}/insight/events", headers=headers) as reply,
    ):
        yield Events(reply)
