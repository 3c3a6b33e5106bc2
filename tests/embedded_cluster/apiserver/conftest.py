"""A server of its own for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from embedded_cluster.apiserver import EmbeddedAPIServer
from tests.support.embedded.client import Client


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedAPIServer]:
    async with EmbeddedAPIServer(versions=("v1", "v1beta2"), seed=1) as running:
        yield running


@pytest.fixture
async def client(server: EmbeddedAPIServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(headers={"User-Agent": "test/1"}) as session:
        yield Client(server, session)
