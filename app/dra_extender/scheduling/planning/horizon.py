"""How many pods ahead of the queue are worth a nomination: as many as will be bound in the next seconds.

Promises: pure but for the clock. A nomination that comes too late is a write for nothing; one that comes long before
its turn is often wrong by then, and keeps autoscalers from looking at the pod.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dra_extender.scheduling.ports import Clock

SECONDS_AHEAD: Final = 3.0
SECONDS_FOR_ALL: Final = 60.0
"""Where nobody can tell who comes next, as many as possible are nominated, if all will be bound in this time."""
MEASURED_SECONDS: Final = 2.0
UNKNOWN: Final = 128
"""Pods while none has been bound lately."""
LEAST: Final = 8
MOST: Final = 512


class Horizon:
    """Tell it of every pod that is bound."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bound: deque[float] = deque(maxlen=4 * MOST)

    def bound(self) -> None:
        """One more pod is."""
        self._bound.append(self._clock.monotonic())

    def per_second(self) -> float:
        """How many pods were bound in a second, lately."""
        since = self._clock.monotonic() - MEASURED_SECONDS
        while self._bound and self._bound[0] < since:
            self._bound.popleft()
        if not self._bound:
            return 0.0
        return len(self._bound) / max(self._clock.monotonic() - self._bound[0], 0.25)

    def ahead(self, waiting: int, missed: float = 0.0) -> int:
        """How many of the pods that wait are nominated at most. `missed`: how far from the front those were that were
        asked about.
        """
        rate = self.per_second()
        if not rate:
            return UNKNOWN
        wanted = round(rate * SECONDS_AHEAD)
        if missed > wanted:
            wanted = waiting if waiting <= min(2 * MOST, rate * SECONDS_FOR_ALL) else 0
        return max(LEAST, min(MOST, wanted))
