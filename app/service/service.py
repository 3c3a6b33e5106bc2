"""The composition root, and the life of what it wires: start, stop and kill.

`Service` promises: it listens at once and answers 503 until it may decide; `stop` hands back what it holds (running
binds finish within the grace period, the lease is released), `kill` does none of that, as a crash would. Several
services can live in one process.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self

import structlog
from fastapi import FastAPI

from app.http.application import create_app, create_insight_app
from app.http.clients import Clients
from app.http.crowds import Crowds
from app.http.insight import insight_router
from app.http.metrics import Metrics
from app.http.readers import Readers
from app.kube.client import KubeClient
from app.kube.reviews import Reviews
from app.service.gate import Gate
from app.service.health import Health
from app.service.insight import Insight
from app.service.lag import observe_lag
from app.service.listeners import Listeners
from app.service.readings import readings
from app.service.settings import Settings
from app.service.status import Status
from app.service.supervision import Supervision
from app.version import VERSION

log = structlog.get_logger(__name__)


class _Running(NamedTuple):
    """What there is between `start` and the end."""

    client: KubeClient
    supervision: Supervision
    task: asyncio.Task[None]


class Service:
    """One replica. Use it as a context manager, or `start` and then `stop` or `kill`."""

    def __init__(self, settings: Settings, *, own_process: bool = False) -> None:
        """`own_process`: nothing else of importance lives in this process, so its memory may be tuned for us."""
        self.settings = settings
        self.metrics = Metrics()
        self.status = Status(elects=settings.leader_election)
        self.gate = Gate(self.status)
        self.insight = Insight(self.status)
        self.health = Health(self.status, self.gate)
        self._own_process = own_process
        self._listeners = Listeners(settings, Crowds(self.metrics))
        self._running: _Running | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Of the verbs; empty before the start."""
        return self._listeners.url

    @property
    def insight_url(self) -> str:
        """Of probes, metrics and insight; empty before the start."""
        return self._listeners.insight_url

    async def start(self) -> None:
        """Listen and begin to follow the cluster. Raises CredentialsError, OSError or ssl.SSLError."""
        client = await KubeClient.connect(self.settings.client)
        self.status.server = client.server
        try:
            await self._listeners.start(*self._applications(client))
        except BaseException:
            await client.close()
            raise
        self.metrics.read_from(lambda: readings(self.status, self.gate))
        log.info("listening", verbs=self.url, insight=self.insight_url, version=VERSION, api_server=client.server)
        chores = (self._listeners.renew_certificate, lambda: observe_lag(self.metrics.lagged))
        supervision = Supervision(
            client, self.settings, self.metrics, self.status, chores=chores, own_process=self._own_process
        )
        self._running = _Running(client, supervision, asyncio.create_task(supervision.run(), name="service"))

    async def wait(self) -> None:
        """Until the service fails, which is a bug; the log names it."""
        if self._running is not None:
            await asyncio.wait([self._running.task])

    async def until_ready(self, timeout: float = 60.0) -> None:
        """Until the verbs are served. Raises TimeoutError naming what is missing."""
        try:
            async with asyncio.timeout(timeout):
                while self.gate.unavailable():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise TimeoutError(f"not ready after {timeout:g} s: {self.gate.unavailable()}") from None

    async def stop(self) -> None:
        """Stop accepting, let running binds finish, release the lease, end everything. What waits for others to finish
        takes no longer than the grace period, all of it together: who kills processes counts from the signal.
        """
        if self.gate.closed:
            return
        self.gate.close()
        log.info("stopping")
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.shutdown_grace
        await self._listeners.stop_verbs()
        if self._running is not None:
            await self._running.supervision.hand_over(max(0.0, deadline - clock()))
        await self._listeners.stop(max(0.0, deadline - clock()))
        await self._end()
        log.info("stopped")

    async def kill(self) -> None:
        """End everything at once: no answers, no undoing, no release of the lease."""
        self.gate.close()
        if self._running is not None:
            await self._running.client.close()
        await self._end()
        await self._listeners.kill()

    async def _end(self) -> None:
        if self._running is None:
            return
        client, supervision, task = self._running
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await supervision.drain(0)
        await client.close()

    def _applications(self, client: KubeClient) -> tuple[FastAPI, FastAPI | None]:
        """That of the verbs, and that of insight where it has an address of its own."""
        router = insight_router(self.insight)
        separate = bool(self.settings.insight_listen)
        readers = Readers(Reviews(client)) if self.settings.insight_authorization else None
        verbs = create_app(
            self.gate,
            unavailable=self.gate.unavailable,
            metrics=self.metrics,
            max_body=self.settings.max_body,
            clients=Clients(self.settings.client_names),
            health=None if separate else self.health,
            insight=() if separate else (router,),
            readers=readers,
        )
        return verbs, create_insight_app(self.health, self.metrics, (router,), readers) if separate else None
