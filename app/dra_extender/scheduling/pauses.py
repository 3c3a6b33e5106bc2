"""Backoff: when an operation that failed may be tried again.

Promises: pauses double with each failure, from seconds up to a limit, and start over after `forget`. A bounded number
of keys is remembered, the least recently used are dropped first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock

K = TypeVar("K", bound=Hashable)


class Pauses(Generic[K]):
    """By the key of the operation."""

    MOST = 10_000

    def __init__(self, clock: Clock, config: SchedulingConfig) -> None:
        self._clock = clock
        self._config = config
        self._known: LRUCache[K, tuple[float, float]] = LRUCache(self.MOST)

    def failed(self, key: K) -> None:
        """The operation has failed once more."""
        pause, _ = self._known.get(key, (self._config.again_seconds / 2, 0.0))
        pause = min(2 * pause, self._config.again_most_seconds)
        self._known[key] = pause, self._clock.monotonic() + pause

    def over(self, key: K) -> bool:
        """True when it may be tried."""
        known = self._known.get(key)
        return known is None or self._clock.monotonic() >= known[1]

    def forget(self, key: K) -> None:
        """The operation has succeeded, or is no longer needed."""
        self._known.pop(key, None)
