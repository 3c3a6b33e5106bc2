"""A service as a process: it ends by SIGTERM or SIGINT, and by nothing else that the cluster does.

Promises: the first signal stops in order, the second at once; the exit status is 0 after a signal, 1 when the service
could not start or go on, and the log says why in one line.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Awaitable

import structlog

from dra_extender.kube.credentials import CredentialsError
from dra_extender.service.service import Service
from dra_extender.service.settings import Settings

log = structlog.get_logger(__name__)


async def serve_until_signalled(settings: Settings) -> int:
    """The exit status."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    again = asyncio.Event()

    def on_signal() -> None:
        (again if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    service = Service(settings, own_process=True)
    try:
        await service.start()
    except (CredentialsError, OSError, ssl.SSLError) as problem:
        log.error("cannot start", problem=str(problem))
        return 1
    failed = not await _first(asked.wait(), service.wait())
    stopping = asyncio.create_task(service.stop())
    if not await _first(stopping, again.wait()):
        log.warning("second signal: ending at once")
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await service.kill()
    return 1 if failed else 0


async def _first(one: Awaitable[object], other: Awaitable[object]) -> bool:
    """True when `one` was done before `other`; the later one is cancelled."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    won = tasks[0].done()
    tasks[1 if won else 0].cancel()
    return won
