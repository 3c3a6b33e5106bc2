"""The service as a process, as a user starts it: its memory, the memory of its workers, and its end when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import aiohttp

from tests.support.patience import LONGEST
from tools.hostile.observer import Look
from tools.hostile.serving import TURNS, turns
from tools.memory import resident

ROOT: Final = Path(__file__).parents[2]
_POLITE: Final = 10.0


class Service:
    """One process at a time; the caller that finds it dead restarts it. `starts` counts.

    `memory`: bytes of address space that it gets, as a container's limit would; what its workers get is its own affair.
    `trust` is for its addresses, if they have TLS.
    """

    module = "tools.hostile.serving"

    def __init__(
        self,
        verbs: str,
        insight: str,
        flags: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        memory: int = 0,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self.verbs, self.insight = verbs, insight
        self.starts = 0
        self._flags, self._environment = tuple(flags), dict(environment)
        self._log, self._memory, self._trust = log, memory, trust
        self._turns = log.with_suffix(".turns")
        self._process: asyncio.subprocess.Process | None = None

    def turns(self, start: float, end: float) -> list[Look]:
        """The turns of its event loop that ended between two moments."""
        return turns(self._turns, start, end)

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    def dead(self) -> bool:
        return self._process is None or self._process.returncode is not None

    async def start(self) -> None:
        """Start it and wait until it serves the verbs. Raises AssertionError with the end of its log."""
        inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self.module, "serve", *self._flags,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=ROOT, env=inherited | self._environment | {TURNS: str(self._turns)}, start_new_session=True,
            )  # fmt: skip
        if self._memory:
            resource.prlimit(self.pid, resource.RLIMIT_AS, (self._memory, resource.RLIM_INFINITY))
        self.starts += 1
        await self._ready()

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LONGEST
        connector = aiohttp.TCPConnector(ssl=self._trust or True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=LONGEST)) as session:
            while True:
                if self.dead() or loop.time() > deadline:
                    raise AssertionError(f"the service does not get ready:\n{self.tail()}")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self.insight}/readyz") as reply:
                        if reply.ok:
                            return
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """As the kernel does: at once, with its workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def stop(self) -> None:
        """As kubelet ends it."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _POLITE)
        await self.kill()  # workers that outlive it, too

    def resident(self) -> int:
        """Bytes of memory that the process has in use."""
        return resident(self.pid)

    def workers(self) -> int:
        """Bytes that its child processes have in use."""
        return sum(map(resident, descendants(self.pid)))

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children: dict[int, list[int]] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of a command may contain anything; what follows its closing bracket is numbers.
            parent = int(found.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(found.parent.name))
    made, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            made.append(child)
            waiting.append(child)
    return made
