"""Every async test of this room happens in virtual time, and what most of them begin with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.scheduling.objects import Objects, make_class, make_node, make_slice
from tests.scheduling.virtualtime import VirtualLoop
from tests.scheduling.world import World, story


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


@pytest.fixture
def small() -> Objects:
    """Two nodes with two devices each, and the class."""
    return [make_class(), make_node("n1"), make_node("n2"), make_slice("n1", ["a", "b"]), make_slice("n2", ["a", "b"])]
