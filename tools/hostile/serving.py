"""The service with a clock in its event loop: `python -m tools.hostile.serving serve ...`.

Writes how much processor time the loop's thread takes between two turns of a timer, beyond the timer's period, to the
file that the environment names: a line with the machine's monotonic clock and the seconds. What a busy machine takes
from the thread does not count.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

from dra_extender.cli.main import main
from tools.hostile.observer import Look

TURNS: Final = "HOSTILE_TURNS"
PERIOD: Final = 0.02
SHORT: Final = 0.01
"""Seconds that are not worth a line."""


async def clock(file: Path) -> None:
    """Until cancelled."""
    with file.open("a") as written:
        while True:
            before = time.thread_time()
            await asyncio.sleep(PERIOD)
            turn = time.thread_time() - before - PERIOD
            if turn > SHORT:
                written.write(f"{time.monotonic()} {turn}\n")
                written.flush()


def turns(file: Path, start: float, end: float) -> list[Look]:
    """The turns that ended between two moments and are not short."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    found = [(float(at), float(seconds)) for at, seconds in lines]
    return [Look("turn", at, seconds, 0.0, seconds, 200) for at, seconds in found if start <= at <= end + PERIOD]


def serve(file: Path) -> None:
    """As the command does, with the clock."""
    run = uvloop.run

    async def clocked(service: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.create_task(clock(file))
        try:
            return await service
        finally:
            task.cancel()

    uvloop.run = lambda service, **options: run(clocked(service), **options)
    main()


if __name__ == "__main__":
    serve(Path(os.environ[TURNS]))
