"""A few worker processes: started for requests, asked one request at a time, and ended when they are idle.

Promises
- Every request gets an answer, `Overrun` at worst, within the deadline and a little more.
- A worker that is stopped at a limit, crashes or does not speak sense costs its request only; the next one gets a new
  process. A crash for which the request need not be the reason is tried once more.
- Idle processes end; `close` ends all of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import structlog

import dra_extender
from dra_extender.allocation.workerrequests import Overrun, TimedReply, WorkerRequest, kind_of
from dra_extender.workers import WorkerLimits
from dra_extender.workers.wire import HEADER, WireError, decode_reply, encode_request, frame, length

ENDING_SECONDS: Final = 1.0
"""How long a process that closes its output may take to end."""

KEPT_VARIABLES: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TMPDIR", "TZ")
"""What a worker gets of the environment: nothing that could be a secret."""


class WorkerEndedError(Exception):
    """The process has ended, or does not speak sense. `status`: its exit status, negative for a signal."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One process as its parent sees it. Make it with `start`, end it with `end`."""

    _process: Process

    @classmethod
    async def start(cls, arguments: Sequence[str]) -> Self:
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command(arguments), stdin=PIPE, stdout=PIPE, env=environment(), cwd=os.sep, start_new_session=True
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

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
        if self.is_alive:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-s", "-m", "dra_extender.workers", *arguments]


def environment() -> dict[str, str]:
    """What it gets of the environment, and where it finds this package."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, "PYTHONPATH": str(Path(dra_extender.__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}


log = structlog.get_logger(__name__)

CRASHES: Final = 2
"""How many processes one request may cost before it is given up."""

STOPPED_AT_TIME: Final = -signal.SIGXCPU


class WorkerPool:
    """Fulfils `scheduling.ports.Workers`. `starts` counts processes, replacements included."""

    def __init__(self, limits: WorkerLimits) -> None:
        self.starts = 0
        self.capacity = limits.count
        """How many requests are worked on at the same time."""
        self._limits = limits
        self._idle: list[tuple[WorkerProcess, asyncio.TimerHandle]] = []
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> int:
        """How many processes have nothing to do."""
        return len(self._idle)

    async def answer(self, request: WorkerRequest) -> TimedReply:
        """The answer, and how much CPU time it took."""
        payload, seconds = await encode_request(request)
        try:
            message = frame(payload)
        except WireError as problem:
            log.warning("a request is too large for a worker", kind=kind_of(request), problem=str(problem))
            return TimedReply(Overrun("memory", "is too large to be asked"), seconds)
        for _ in range(CRASHES):
            reply = await self._attempt(request, message)
            seconds += reply.seconds
            if not (isinstance(reply.reply, Overrun) and reply.reply.limit == "crash"):
                break
        return TimedReply(reply.reply, seconds)

    async def _attempt(self, request: WorkerRequest, message: bytes) -> TimedReply:
        limits = self._limits
        try:
            process = await self._process()
        except OSError as problem:
            log.warning("a worker process does not start", problem=str(problem))
            return TimedReply(Overrun("start", "cannot be answered, because no worker process starts"), 0.0)
        try:
            reply = await process.ask(message, limits.seconds * limits.patience)
        except TimeoutError:
            await process.end()
            return self._too_long(request)
        except WorkerEndedError as end:
            if end.status == STOPPED_AT_TIME:
                return self._too_long(request)
            log.warning("a worker process has ended", kind=kind_of(request), status=end.status, problem=str(end))
            return TimedReply(Overrun("crash", "ends the process that works on it"), limits.seconds)
        except BaseException:
            await process.end()
            raise
        if isinstance(reply.reply, Overrun):
            await process.end()  # after it has been out of memory there may be holes in it
        else:
            self._rest(process)
        return reply

    def _too_long(self, request: WorkerRequest) -> TimedReply:
        log.info("a worker process was stopped", kind=kind_of(request), seconds=self._limits.seconds)
        return TimedReply(Overrun("time", f"needs more than {self._limits.seconds:g} s"), self._limits.seconds)

    async def _process(self) -> WorkerProcess:
        """One that has nothing to do, or a new one. Raises OSError."""
        while self._idle:
            process, timer = self._idle.pop()
            timer.cancel()
            if process.is_alive:
                return process
        limits = self._limits
        self.starts += 1
        return await WorkerProcess.start([str(limits.seconds), str(limits.memory), str(limits.step_budget)])

    def _rest(self, process: WorkerProcess) -> None:
        timer = asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._retire, process)
        self._idle.append((process, timer))

    def _retire(self, process: WorkerProcess) -> None:
        self._idle = [(other, timer) for other, timer in self._idle if other is not process]
        task = asyncio.create_task(process.end(), name="idle worker")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End the idle processes; the others end with the call that asked."""
        for process, timer in self._idle:
            timer.cancel()
            await process.end()
        self._idle.clear()
        await asyncio.gather(*self._ending)
