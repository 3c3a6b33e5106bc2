"""A small cluster with devices and a service, everything on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dra_extender.service.service import Service
from dra_extender.service.settings import load
from tests.support.service.readiness import until_ready
from tests.support.service.world import StartService, World, populated


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with populated() as made:
        yield made


@pytest.fixture
def start_service(world: World) -> StartService:
    """A running service; extra settings as arguments."""

    @asynccontextmanager
    async def start(*, wait: bool = True, **settings: Any) -> AsyncIterator[Service]:
        given = {"listen": "127.0.0.1:0", "server": world.api.url, "shutdown_grace": 2.0} | settings
        async with Service(load(given)) as service:
            if wait:
                await until_ready(service)
            yield service

    return start


@pytest.fixture
async def service(start_service: StartService) -> AsyncIterator[Service]:
    async with start_service() as made:
        yield made
