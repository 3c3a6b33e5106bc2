"""Every async test of a room whose conftest takes these names over happens in virtual time, and may have a world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.support.simulation.virtualtime import VirtualLoop
from tests.support.simulation.world import World, story


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """pytest-asyncio makes the event loop of a test, and of its fixtures, with this."""
    return {"virtual": VirtualLoop}


@pytest.fixture
def seed() -> int | None:
    """What the order of callbacks is drawn from. A test that wants one is parametrized with `seed`."""
    return None


@pytest.fixture
async def world(seed: int | None) -> AsyncIterator[World]:
    """A world, at the end of which its services are stopped and nothing that must never happen has happened."""
    async with story(seed) as world:
        yield world
