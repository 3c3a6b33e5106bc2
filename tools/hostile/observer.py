"""Looks at a running service from outside: `python -m tools.hostile.observer` with a `Task` as its input.

A process of its own, so that nothing else keeps it from looking. It asks for /livez every 20 ms on a connection that
stays and every second on a new one, and for filter every 50 ms, and writes each answer as a `Look`, one per line.

A look knows how long the main thread of the service ran, and how long a thread of the service or of this process was
ready to run and had no core (the kernel counts it): a thread that has the interpreter and no core stops the others. For
the rest of a late answer the service was blocked. How much the thread runs at once is counted where it runs
(`serving`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import aiohttp
import msgspec
import uvloop

PROBING: Final = 0.02
FILTERING: Final = 0.05
CONNECTING: Final = 1.0
PATIENCE: Final = 300.0
_NANO: Final = 1e9

What = Literal["probe", "connection", "filter", "turn"]


class Task(msgspec.Struct, frozen=True):
    """What to look at. `body` is a filter request; the files are for TLS, if the verbs have it."""

    pid: int
    insight: str
    verbs: str
    body: bytes
    authorities: str = ""
    certificate: str = ""
    key: str = ""


class Look(msgspec.Struct, frozen=True):
    """One answer: asked `at` (seconds of the machine's monotonic clock), and how long it took. `waited` of that neither
    the service nor this process had a core; `cpu` of it the service's main thread ran. `status`: 0 for none.
    Or a turn of the service's event loop, which ended `at` that moment; `where`: what a long turn did.
    """

    what: What
    at: float
    seconds: float
    waited: float
    cpu: float
    status: int
    where: str = ""

    @property
    def own(self) -> float:
        """Seconds in which the service did nothing else: those of a turn, or those in which it was blocked."""
        return self.cpu if self.what == "turn" else max(0.0, self.seconds - self.waited - self.cpu)


def running(pid: int, processes: Path = Path("/proc")) -> tuple[float, float]:
    """Seconds that the main thread of a process has run, and that its threads have waited for a core. Zeros when it is
    gone.
    """
    ran, waited = 0, 0
    for thread in (processes / str(pid) / "task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError):
            numbers = list(map(int, thread.read_text().split()))
            ran += numbers[0] if thread.parent.name == str(pid) else 0
            waited += numbers[1]
    return ran / _NANO, waited / _NANO


class Observer:
    """Two clients that never stop."""

    def __init__(self, task: Task, tell: Callable[[Look], object]) -> None:
        self._task, self._tell = task, tell

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat("probe", PROBING))
            group.create_task(self._repeat("connection", CONNECTING))
            group.create_task(self._repeat("filter", FILTERING))

    async def _repeat(self, what: What, pause: float) -> None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        stays = what != "connection"
        # A connection must not be shared: a late answer would hide behind another.
        connector = aiohttp.TCPConnector(limit=1, ssl=self._trust(), force_close=not stays)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                self._tell(await self._look(session, what))
                await asyncio.sleep(pause)

    def _trust(self) -> ssl.SSLContext | bool:
        task = self._task
        return trust(task.authorities, task.certificate, task.key) if task.authorities else True

    async def _look(self, session: aiohttp.ClientSession, what: What) -> Look:
        task, status = self._task, 0
        ran, delayed = running(task.pid)
        _, late = running(os.getpid())
        at = time.monotonic()
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            if what == "filter":
                request = session.post(f"{task.verbs}/scheduler/filter", data=task.body)
            else:
                request = session.get(f"{task.insight}/livez")
            async with request as answer:
                status = answer.status
                content = await answer.read()
                if what == "filter" and not _fits(content):
                    status = -status
        seconds = time.monotonic() - at
        ran_then, delayed_then = running(task.pid)
        waited = max(0.0, delayed_then - delayed) + max(0.0, running(os.getpid())[1] - late)
        return Look(what, at, seconds, min(waited, seconds), max(0.0, ran_then - ran), status)


def trust(authorities: str, certificate: str, key: str) -> ssl.SSLContext:
    """What a client of the verbs believes and shows, from files."""
    context = ssl.create_default_context(cafile=authorities)
    context.load_cert_chain(certificate, key)
    return context


def _fits(content: bytes) -> bool:
    """True when filter named a node."""
    try:
        return bool(msgspec.json.decode(content).get("NodeNames"))
    except (msgspec.DecodeError, AttributeError):
        return False


def _say(look: Look) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(look) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        uvloop.run(Observer(task, _say).run())


if __name__ == "__main__":
    main()
