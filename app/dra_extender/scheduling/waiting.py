"""Waiting: for a condition on watched state, and before an operation that failed is tried again.

Promises: `Signals.until` evaluates the condition at once, and then only when one of its keys is notified. It does not
poll, and leaves nothing behind when it ends or is cancelled. `Backoffs` double with each failure, from seconds up to a
limit, and start over after `forget`. A bounded number of keys is remembered, the least recently used are dropped first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from cachetools import LRUCache

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock


class Signals:
    """Keys are UIDs of claims and pods, or deferred requests."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}

    def notify(self, key: Hashable) -> None:
        for event in self._waiting.get(key, ()):
            event.set()

    async def until(self, condition: Callable[[], bool], keys: Iterable[Hashable], timeout: float) -> bool:
        """True when `condition` became true within `timeout` seconds. What it raises is passed on."""
        if condition():
            return True
        event = asyncio.Event()
        keys = frozenset(keys)
        for key in keys:
            self._waiting.setdefault(key, set()).add(event)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await event.wait()
                    event.clear()
                    if condition():
                        return True
        except TimeoutError:
            return condition()
        finally:
            for key in keys:
                self._waiting[key].discard(event)
                if not self._waiting[key]:
                    del self._waiting[key]


K = TypeVar("K", bound=Hashable)


class Backoffs(Generic[K]):
    """The pauses after failures, by key of the operation."""

    MOST = 10_000

    def __init__(self, clock: Clock, config: SchedulingConfig) -> None:
        self._clock = clock
        self._config = config
        self._known: LRUCache[K, tuple[float, float]] = LRUCache(self.MOST)

    def failed(self, key: K) -> None:
        pause, _ = self._known.get(key, (self._config.initial_backoff_seconds / 2, 0.0))
        pause = min(2 * pause, self._config.max_backoff_seconds)
        self._known[key] = pause, self._clock.monotonic() + pause

    def over(self, key: K) -> bool:
        known = self._known.get(key)
        return known is None or self._clock.monotonic() >= known[1]

    def forget(self, key: K) -> None:
        """The operation has succeeded, or is no longer needed."""
        self._known.pop(key, None)
