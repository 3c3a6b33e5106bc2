"""How late the event loop runs what is due: long means that something blocks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PERIOD = 0.25


async def observe_lag(observe: Callable[[float], object]) -> None:
    """Report the lag in seconds every quarter of a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + PERIOD
        await asyncio.sleep(PERIOD)
        observe(max(0.0, loop.time() - due))
