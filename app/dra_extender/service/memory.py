"""The garbage collector and the heap of a process that is ours alone.

Promises: what is kept for as long as the cluster is followed is not looked through at every collection, which would
cost pauses for nothing; circles of what is new are found before they are many; memory that was let go is given back to
the system. In a process of others nothing is tuned.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

PERIOD: Final = 10.0
"""Seconds between attempts to give memory back: a tenth of a millisecond when there is none, ten for 100 MB."""

YOUNG: Final = 10_000
"""Objects made and not let go of before they are looked through, a fraction of a millisecond. Hardly any are circles:
by default, with 700, the same ones are looked through again and again while the pods they are about are waiting.
"""

SELDOM: Final = (2, 1)
"""How many times that happens before those that were left are looked through as well, and before all are. What is kept
for good is left out, so all are few. By default, with 10 and 10, a million objects come together before circles that
outlived a minute are found: a hundred megabytes, and then half a second in one go. When most are alive, Python looks at
all of them only when a quarter of them has come anew.
"""


class Memory:
    """`own`: nothing else of importance lives in this process."""

    def __init__(self, *, own: bool) -> None:
        self._own = own

    def keep(self) -> None:
        """What is there now stays, beside what stays already."""
        if self._own:
            gc.set_threshold(YOUNG, *SELDOM)
            gc.collect()
            gc.freeze()

    def keep_anew(self) -> None:
        """What is there now stays; what an engine before this one has left goes."""
        if self._own:
            gc.unfreeze()
        self.keep()

    async def give_back(self) -> None:
        """For ever: let the system have what the C library keeps between pieces that are still in use. Otherwise the
        process stays as large as the largest objects that were ever listed have made it.
        """
        while True:
            await asyncio.sleep(PERIOD)
            if self._own:
                await asyncio.to_thread(trim)


def _no_trim(_keep: int) -> int:
    return 0


def _found() -> Callable[[int], int]:
    """glibc has it, musl and macOS have not."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return _no_trim
    return found


_malloc_trim: Final = _found()


def trim() -> bool:
    """Give back what can be; true when there was something. Other threads go on meanwhile."""
    return bool(_malloc_trim(0))
