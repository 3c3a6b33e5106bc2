"""The service with a clock in its event loop: `python -m tools.hostile.serving serve ...`.

Writes how much processor time the loop's thread takes between two turns of a timer, beyond the timer's period, to the
file that the environment names: a line with the machine's monotonic clock, the seconds, and what the loop did. What a
busy machine takes from the thread does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvloop

from dra_extender.cli.main import main
from tools.hostile.observer import Look

TURNS: Final = "HOSTILE_TURNS"
PERIOD: Final = 0.02
SHORT: Final = 0.01
"""Seconds that are not worth a line."""
SAMPLED: Final = 0.06
"""Seconds of processor time after which a turn is asked what it does, and again after as many."""
_FRAMES: Final = 4


class Sampler:
    """What the loop's thread does in a long turn: the innermost frames at each sample, and the garbage collector."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self._collecting = self._collected = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """In the main thread, which runs signal handlers."""
        before = signal.signal(signal.SIGPROF, self._sample)
        gc.callbacks.append(self._collect)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collect)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def restart(self) -> None:
        """A turn begins."""
        self._found.clear()
        self._collected = 0.0
        signal.setitimer(signal.ITIMER_PROF, SAMPLED, SAMPLED)

    def found(self) -> str:
        """What the turn did: one line; empty for a short turn."""
        frames = [f"{number} × {where}" if number > 1 else where for where, number in self._found.items()]
        collected = [f"garbage collection {self._collected * 1e3:.0f} ms"] if self._collected > SHORT else []
        return "; ".join((*frames, *collected))

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        inner = traceback.extract_stack(frame, _FRAMES) if frame is not None else ()
        where = " > ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in inner)
        self._found[where] = self._found.get(where, 0) + 1

    def _collect(self, phase: str, _info: object) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting


async def clock(file: Path) -> None:
    """Until cancelled. In the main thread."""
    sampler = Sampler()
    with file.open("a") as written, sampler.running():
        while True:
            before = time.thread_time()
            sampler.restart()
            await asyncio.sleep(PERIOD)
            turn = time.thread_time() - before - PERIOD
            if turn > SHORT:
                written.write(f"{time.monotonic()} {turn} {sampler.found()}\n")
                written.flush()


def turns(file: Path, start: float, end: float) -> list[Look]:
    """The turns that ended between two moments and are not short."""
    lines = [line.split(" ", 2) for line in file.read_text().splitlines()] if file.exists() else []
    found = [(float(at), float(seconds), where) for at, seconds, where in lines]
    return [
        Look("turn", at, seconds, 0.0, seconds, 200, where)
        for at, seconds, where in found
        if start <= at <= end + PERIOD
    ]


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
