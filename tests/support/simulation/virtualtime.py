"""Virtual time: it jumps to the next timer, so waits cost nothing and every run with the same seed is the same run.

A seed determines the order of callbacks that are ready at the same time. What would wait for ever, or for
more than a day, is an error.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 100_000.0
"""Seconds: no story is longer."""


class _Jump(selectors.SelectSelector):
    """Instead of waiting, time moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._limit = LIMIT

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: all tasks wait for each other")
        self.now += max(0.0, timeout)
        if self.now > self._limit:
            self._limit += LIMIT  # what ends the story has time of its own
            raise RuntimeError(f"not over after {self.now:,.0f} s of virtual time")
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual."""

    def __init__(self) -> None:
        self._jump = _Jump()
        self._random: random.Random | None = None
        super().__init__(self._jump)

    def shuffle(self, seed: int | None) -> None:
        """From now on callbacks that are ready together run in an order drawn from the seed; None: as they came."""
        self._random = random.Random(seed) if seed is not None else None

    def time(self) -> float:
        return self._jump.now

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if self._random is not None and len(ready) > 1:
            mixed = list(ready)
            self._random.shuffle(mixed)
            ready.clear()
            ready.extend(mixed)
        super()._run_once()  # type: ignore[misc]


class VirtualClock:
    """The virtual loop's time; the time of day starts in 2026, can be set off, and drifts by this part of a second per
    second.
    """

    def __init__(self, offset: float = 0.0, drift: float = 0.0) -> None:
        self.offset = offset
        self.drift = drift

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.monotonic() * (1 + self.drift) + self.offset)
