"""Growing pauses between attempts, spread by chance so that many clients come back at different moments."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Each `next` is about twice the one before, from `first` up to `most` seconds; `reset` starts over."""

    def __init__(self, first: float = 0.5, most: float = 15.0, *, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._most = most
        self._chance = chance
        self._pause = first

    def next(self) -> float:
        """Seconds to wait now: between half and all of the current pause."""
        pause = self._pause * (0.5 + 0.5 * self._chance())
        self._pause = min(self._pause * 2, self._most)
        return pause

    def reset(self) -> None:
        self._pause = self._first
