"""A served application over scripted decisions, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.support.http.served import Served, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    async with serving(made.application(max_body=100_000)) as server:
        made.url = server.url
        yield made


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made
