"""A child process that is restarted whenever it ends.

`Companion.run` promises: exactly one such process at a time; what it writes goes into a log file; `stop` ends it for
good, politely first.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds before the next start, by how many times in a row it ended at once."""
_AT_ONCE = 5.0
_POLITE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class Companion:
    """`on_change` gets one line whenever the process starts or ends."""

    def __init__(self, command: Sequence[str], log: Path, on_change: Callable[[str], object]) -> None:
        self._command = tuple(command)
        self._log = log
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._quick_ends = 0
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """For ever: start it, wait for its end, start it again."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            code = await self._live()
            self._quick_ends = self._quick_ends + 1 if loop.time() - started < _AT_ONCE else 0
            pause = _PAUSES[min(self._quick_ends, len(_PAUSES) - 1)]
            log = f"; its log is {self._log}" if code > 0 else ""
            self._on_change(f"the service ended ({ending(code)}){log}; starting it again in {pause:g} s")
            await asyncio.sleep(pause)

    async def _live(self) -> int:
        """One life of the process; returns its exit status."""
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._process = process
        self.starts += 1
        self._on_change(f"the service runs as process {process.pid}")
        return await process.wait()

    async def stop(self) -> None:
        """End the process; call it after `run` has been cancelled."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _POLITE)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def tail(self, lines: int = 20) -> list[str]:
        """The last lines of the log."""
        try:
            return self._log.read_text(errors="replace").splitlines()[-lines:]
        except OSError:
            return []


def ending(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
