"""How long tests wait for what has to happen: until it does.

A wait ends when its condition holds, so a generous limit costs nothing where all is well, and a machine that is busy
gets its time. All limits are here; what has to be seen not to happen is waited for by a condition, too
(that something later has happened), never by seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

LONGEST = 90.0
"""Seconds after which something counts as not happening. Below the timeout of pytest, which names no condition."""
_INTERVAL = 0.005

T = TypeVar("T")


async def until(look: Callable[[], T], what: str | Callable[[], object] = "it") -> T:
    """What `look` returns as soon as it is true. Raises AssertionError that says `what` did not happen.

    A function as `what` is called then, to say how things stand.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + LONGEST
    while not (seen := look()):
        if clock() > deadline:
            raise AssertionError(f"{what() if callable(what) else what} did not happen in {LONGEST:g} s")
        await asyncio.sleep(_INTERVAL)
    return seen
