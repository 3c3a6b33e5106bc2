"""Keys waiting to be worked on, as controllers use them.

`RateLimitedQueue` promises: one worker at a time handles a key; a key added while it waits is handled once; a key added
while it is handled is handled once more; a failed key is retried with growing pauses and never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from dra_extender.api.errors import ApiError
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class RateLimitedQueue(Generic[K]):
    """Calls `handle(key)` for every key. `run` never returns."""

    def __init__(self, name: str, handle: Callable[[K], Awaitable[object]], *, workers: int = 4) -> None:
        self._name = name
        self._handle = handle
        self._workers = workers
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Work on it as soon as possible."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Work on it in so many seconds; the earliest of several wishes counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        when = loop.time() + max(seconds, 0.0)
        if timer is not None and timer.when() <= when:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    def idle(self) -> bool:
        """True when nothing waits and nothing is being worked on (pauses after failures do not count)."""
        return not self._waiting and not self._busy

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait for the next key and work on it once."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._busy.add(key)
        try:
            await self._handle(key)
        except ApiError as problem:
            self._failed(key, problem.message)
        except Exception as problem:  # a controller outlives every mistake
            unexpected("controller", problem, queue=self._name, key=key)
            self._failed(key, str(problem))
        else:
            self._failures.pop(key, None)
        finally:
            self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    def _failed(self, key: K, problem: str) -> None:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        log.debug("will try again", queue=self._name, key=key, problem=problem, attempts=count)
        self.add_after(key, min(_FIRST_PAUSE * 2 ** (count - 1), _LONGEST_PAUSE))
