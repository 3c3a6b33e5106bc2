"""How many pods ahead of the queue are worth a nomination: as many as will be bound in the next seconds.

Promises: pure but for the clock. A nomination that comes too late is a write for nothing; one that comes long before
its turn is often wrong by then, and keeps autoscalers from looking at the pod.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from app.scheduling.ports import Clock

SECONDS_AHEAD: Final = 2.0
MEASURED_SECONDS: Final = 2.0
LEAST: Final = 32
MOST: Final = 256


class Pace:
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

    def ahead(self) -> int:
        """How many pods, from the front of the queue, are nominated at most."""
        return max(LEAST, min(MOST, round(self.per_second() * SECONDS_AHEAD)))
