"""One worker process as its parent sees it: started, asked one request at a time, and killed without regret."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import dra_extender
from dra_extender.workers.wire import HEADER, TimedReply, WireError, decode_reply, length

ENDING_SECONDS: Final = 1.0
"""How long a process that closes its output may take to end."""

KEPT_VARIABLES: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TMPDIR", "TZ")
"""What a worker gets of the environment: nothing that could be a secret."""


class WorkerEndedError(Exception):
    """The process has ended, or does not speak sense. `status`: its exit status, negative for a signal."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class WorkerProcess:
    """Make it with `start`, end it with `end`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, arguments: Sequence[str]) -> Self:
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command(arguments),
            stdin=PIPE,
            stdout=PIPE,
            env=environment(),
            cwd=os.sep,
            start_new_session=True,
        )
        return cls(process)

    async def ask(self, request: bytes, seconds: float) -> TimedReply:
        """The reply to a frame. Raises TimeoutError and WorkerEndedError; then the process is of no more use."""
        try:
            async with asyncio.timeout(seconds):
                return decode_reply(await self._exchange(request))
        except TimeoutError:
            raise
        except (OSError, asyncio.IncompleteReadError, WireError) as problem:
            await self._ended()
            raise WorkerEndedError(self._process.returncode or 0, f"{type(problem).__name__}: {problem}") from None

    async def _exchange(self, request: bytes) -> bytes:
        """Raises OSError, IncompleteReadError and WireError."""
        sent, received = self._process.stdin, self._process.stdout
        if sent is None or received is None:
            raise WireError("no pipes")
        sent.write(request)
        await sent.drain()
        return await received.readexactly(length(await received.readexactly(HEADER.size)))

    async def _ended(self) -> None:
        """Until it has ended by itself, for a moment: its exit status says why."""
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.end()

    async def end(self) -> None:
        """Kill it, unless it has ended by itself."""
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def command(arguments: Sequence[str]) -> list[str]:
    """What is run."""
    return [sys.executable, "-P", "-s", "-m", "dra_extender.workers", *arguments]


def environment() -> dict[str, str]:
    """What it gets of the environment, and where it finds this package."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, "PYTHONPATH": str(Path(dra_extender.__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
