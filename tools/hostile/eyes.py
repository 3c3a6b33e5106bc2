"""What the observer has seen so far, and what is to be made of it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tools.hostile.observer import Look, Task
from tools.hostile.service import ROOT

_look: Final = msgspec.json.Decoder(Look)


class Eyes:
    """An observer process at a time. `looks` grows."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._latest = time.monotonic()

    async def open(self, task: Task) -> None:
        """Begin to look."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tools.hostile.observer",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.close()
        self._latest = time.monotonic()
        self._reading = asyncio.create_task(self._read(self._process))

    async def close(self) -> None:
        """Look no more."""
        if self._process is None or self._reading is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading
        self._process = None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            look = _look.decode(line)
            self.looks.append(look)
            if look.what == "probe" and look.status:
                self._latest = time.monotonic()

    @property
    def blind(self) -> float:
        """Seconds since the last answer to a probe."""
        return time.monotonic() - self._latest

    async def seen(self, since: float) -> None:
        """Until something that was asked after this moment was answered, or the observer has ended."""
        while self._process is not None and self._process.returncode is None:
            if any(look.what == "probe" and look.at >= since for look in reversed(self.looks[-100:])):
                return
            await asyncio.sleep(0.02)

    def between(self, start: float, end: float) -> list[Look]:
        """Those that were under way at some time between."""
        return [look for look in self.looks if look.at + look.seconds >= start and look.at <= end]


def longest(looks: Iterable[Look]) -> Look | None:
    """The longest stall of the service's own."""
    return max((look for look in looks if look.what != "filter"), key=lambda look: look.own, default=None)


def machine(looks: Iterable[Look]) -> float:
    """Seconds of the longest late answer that are the machine's."""
    return max((look.waited for look in looks if look.what != "filter"), default=0.0)


def percentile(looks: Sequence[Look], share: float = 0.99) -> float:
    """Seconds within which this share of the filter calls was answered."""
    times = sorted(look.seconds for look in looks if look.what == "filter")
    return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0
