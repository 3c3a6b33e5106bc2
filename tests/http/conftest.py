"""A served application over scripted decisions, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from dra_extender.http.application import create_app
from dra_extender.http.server import HttpServer
from tests.support.http.served import Served


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    app = create_app(
        made.verbs, unavailable=lambda: made.unavailable, metrics=made.metrics, max_body=100_000, health=made
    )
    server = HttpServer(app, "127.0.0.1", 0, grace=1)
    await server.start()
    made.url = server.url
    yield made
    await server.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made
