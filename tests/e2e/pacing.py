"""How fast calls are made: a number at a time, or a rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any


async def together(calls: Iterable[Awaitable[object]], at_once: int) -> None:
    """All of them, at most `at_once` at the same time."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    await asyncio.gather(*(work() for _ in range(at_once)))


async def steadily(count: int, rate: float, act: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Begin `act` this number of times, at this rate, however long each takes; return when all have ended."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(begun + number / rate - loop.time())
            group.create_task(act(number))
