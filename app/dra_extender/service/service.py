"""The composition root, and the life of what it wires: start, stop and kill.

`Service` promises: it listens at once and answers 503 until it may decide or can ask who does; `stop` hands over at
once (not ready, the lease is released) and answers calls for as long as they may still come; running binds finish
within the grace period. `kill` does none of that, as a crash would. Several services can live in one process.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self

import structlog
from fastapi import FastAPI

from dra_extender.http.application import create_app, create_insight_app
from dra_extender.http.clients import Clients
from dra_extender.http.crowds import Crowds
from dra_extender.http.forwarding import Forwarding
from dra_extender.http.insight.router import insight_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.page.feed import Feed
from dra_extender.http.page.routes import page_router
from dra_extender.http.readers import Readers
from dra_extender.kube.client import KubeClient
from dra_extender.kube.reviews import Reviews
from dra_extender.service.gate import Gate
from dra_extender.service.health import Health
from dra_extender.service.insight import Insight
from dra_extender.service.lag import observe_lag
from dra_extender.service.listeners import Listeners
from dra_extender.service.readings import readings
from dra_extender.service.settings import Settings
from dra_extender.service.status import Status
from dra_extender.service.supervision import Supervision
from dra_extender.version import VERSION

log = structlog.get_logger(__name__)


HANDOVER_SECONDS = 0.5
"""So long the lease waits for binds under way: most take some hundredths of a second, and then no two replicas bind at
a time. New calls wait meanwhile."""


class _Running(NamedTuple):
    """What there is between `start` and the end."""

    client: KubeClient
    forwarding: Forwarding | None
    supervision: Supervision
    task: asyncio.Task[None]


class Service:
    """One replica. Use it as a context manager, or `start` and then `stop` or `kill`."""

    def __init__(self, settings: Settings, *, own_process: bool = False) -> None:
        """`own_process`: nothing else of importance lives in this process, so its memory may be tuned for us."""
        self.settings = settings
        self.metrics = Metrics()
        self.status = Status(elects=settings.leader_election, forwards=bool(settings.advertise))
        self.gate = Gate(self.status)
        self.insight = Insight(self.status)
        self.feed = Feed(self.insight)
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
            forwarding = Forwarding(self.gate, self._listeners.peer()) if self.settings.advertise else None
            await self._listeners.start(*self._applications(client, forwarding))
        except BaseException:
            await client.close()
            raise
        self.metrics.read_from(lambda: readings(self.status, self.gate))
        log.info("listening", verbs=self.url, insight=self.insight_url, version=VERSION, api_server=client.server)
        chores = (self._listeners.renew_certificate, lambda: observe_lag(self.metrics.lagged))
        supervision = Supervision(
            client,
            self.settings,
            self.metrics,
            self.status,
            fit=self.gate.fit,
            lease=self.settings.lease(self._listeners.port),
            chores=chores,
            own_process=self._own_process,
        )
        self._running = _Running(
            client, forwarding, supervision, asyncio.create_task(supervision.run(), name="service")
        )

    async def wait(self) -> None:
        """Until the service fails, which is a bug; the log names it."""
        if self._running is not None:
            await asyncio.wait([self._running.task])

    async def until_ready(self, timeout: float = 60.0) -> None:
        """Until calls of the verbs are answered. Raises TimeoutError naming what is missing."""
        try:
            async with asyncio.timeout(timeout):
                while self.gate.unready():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise TimeoutError(f"not ready after {timeout:g} s: {self.gate.unready()}") from None

    async def stop(self) -> None:
        """Hand over at once, answer calls as long as some may come, let running binds finish, end everything. What
        waits takes no longer than the grace period, all of it together: who kills processes counts from the signal.
        """
        if self.gate.leaving:
            return
        self.gate.leave()
        log.info("stopping")
        clock = asyncio.get_running_loop().time
        started = clock()
        deadline = started + self.settings.shutdown_grace
        if self._running is not None:
            await self._running.supervision.hand_over(min(HANDOVER_SECONDS, self.settings.shutdown_grace / 2))
        await asyncio.sleep(max(0.0, started + self.settings.shutdown_linger - clock()))
        self.gate.close()
        await self.feed.close()
        await self._listeners.stop_verbs(max(0.0, deadline - clock()))
        if self._running is not None:
            await self._running.supervision.drain(max(0.0, deadline - clock()))
        await self._listeners.stop(max(0.0, deadline - clock()))
        await self._end()
        log.info("stopped")

    async def kill(self) -> None:
        """End everything at once: no answers, no undoing, no release of the lease."""
        self.gate.close()
        if self._running is not None:
            await self._running.client.close()
        await self.feed.close()
        await self._end()
        await self._listeners.kill()

    async def _end(self) -> None:
        if self._running is None:
            return
        client, forwarding, supervision, task = self._running
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await supervision.drain(0)
        if forwarding is not None:
            await forwarding.close()
        await client.close()

    def _applications(self, client: KubeClient, forwarding: Forwarding | None) -> tuple[FastAPI, FastAPI | None]:
        """That of the verbs, and that of insight where it has an address of its own."""
        routers = (insight_router(self.insight), page_router(self.feed))
        separate = bool(self.settings.insight_listen)
        readers = Readers(Reviews(client)) if self.settings.insight_authorization else None
        verbs = create_app(
            self.gate,
            unavailable=self.gate.unavailable,
            metrics=self.metrics,
            max_body=self.settings.max_body,
            clients=Clients(self.settings.client_names),
            health=None if separate else self.health,
            insight=() if separate else routers,
            readers=readers,
            forwarding=forwarding,
        )
        return verbs, create_insight_app(self.health, self.metrics, routers, readers) if separate else None
