"""A scripted API server on a real socket: tests say what it answers and look at what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from tests.support.kube.scripted import Lines, ScriptedServer, serving
from tests.support.patience import LONGEST


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serving() as scripted:
        yield scripted


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(ClientSettings(server=server.url, timeout=LONGEST)) as connected:
        yield connected


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
