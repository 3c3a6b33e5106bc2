"""Memory and event loop of the process that the service runs in.

`ProcessMemory` promises, for a process of our own: the garbage collector does not traverse objects that live as long as
the cluster is watched; it collects new reference cycles before there are many; free memory goes back to the system. It
tunes nothing in a process that others use.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

PERIOD: Final = 10.0
"""Seconds between attempts to return memory: an attempt takes 0.1 ms without free memory, 10 ms for 100 MB."""
LAG_PERIOD: Final = 0.25

YOUNG: Final = 10_000
"""Threshold of the first generation, traversed in a fraction of a millisecond. Hardly any new object is part of a
cycle: with Python's default of 700, the same objects are traversed again and again while their pods wait.
"""

OLDER: Final = (2, 1)
"""Thresholds of the second and third generation. Frozen objects are not traversed, so few objects are. With Python's
defaults of 10 and 10, a million objects accumulate before cycles that are a minute old are found: 100 MB, and then a
pause of half a second. If most objects are alive, Python traverses all only when their number has grown by a quarter.
"""


class ProcessMemory:
    """`own`: the service is alone in this process."""

    def __init__(self, *, own: bool) -> None:
        self._own = own

    def freeze(self) -> None:
        """Freeze all objects that exist now, in addition to those frozen before."""
        if self._own:
            gc.set_threshold(YOUNG, *OLDER)
            gc.collect()
            gc.freeze()

    def let_go(self) -> None:
        """Free what an engine that has ended left behind, and freeze the rest: before the next engine lists, so the
        collector does not traverse its objects, too.
        """
        if self._own:
            gc.unfreeze()
        self.freeze()

    async def trim(self) -> None:
        """Return free memory of the C library to the system, until cancelled. Otherwise the process stays as large as
        the largest list response has made it.
        """
        while True:
            await asyncio.sleep(PERIOD)
            if self._own:
                await asyncio.to_thread(trim)


def _no_trim(_keep: int) -> int:
    return 0


def _find_trim() -> Callable[[int], int]:
    """glibc has malloc_trim; musl and macOS do not."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return _no_trim
    return found


_malloc_trim: Final = _find_trim()


def trim() -> bool:
    """Return free memory to the system; True when there was some. Other threads keep running."""
    return bool(_malloc_trim(0))


async def observe_lag(observe: Callable[[float], object]) -> None:
    """Report the delay of a timer on the event loop, in seconds, every `LAG_PERIOD`, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD
        await asyncio.sleep(LAG_PERIOD)
        observe(max(0.0, loop.time() - due))
