"""The composition root, and the life of a service: start, stop and kill.

`Service` promises: it listens at once, on all addresses or on none, and answers 503 until it may decide or can forward
to the leader; a certificate is reloaded when its files change. `stop` hands over at once (not ready, lease released)
and answers calls as long as some may arrive; running binds finish within the grace period; probes on an address of
their own are answered until the end. `kill` does none of that, as a crash would. Several services can run in one
process.

`serve_until_signalled` promises: the first SIGTERM or SIGINT stops the service, the second ends it at once; the exit
status is 0 after a signal, and 1 when the service could not start or continue, with one line in the log that says why.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, NamedTuple, Self

import structlog
from starlette.types import ASGIApp

from dra_extender.api.decoding import ignore_fields
from dra_extender.http.application import create_app, health_router
from dra_extender.http.authorization import AllowedClients, TokenAuthorizer
from dra_extender.http.expander import ExpanderServer
from dra_extender.http.forwarding import Forwarding
from dra_extender.http.insight import insight_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.page.routes import page_router
from dra_extender.http.page.updates import PageUpdates
from dra_extender.http.protocol import ConnectionLimitReport, ConnectionLimits
from dra_extender.http.server import TLS, Certificates, HttpServer, ServerCertificates
from dra_extender.http.verbs import VerbContext, verb_routes
from dra_extender.kube.access import Reviews
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import CredentialsError
from dra_extender.service.addresses import host_and_port, names_in, split_address
from dra_extender.service.process import ProcessMemory, observe_lag
from dra_extender.service.replica import Replica
from dra_extender.service.settings import Settings
from dra_extender.service.supervision import Supervision
from dra_extender.version import VERSION

log = structlog.get_logger(__name__)

CERTIFICATE_PERIOD: Final = 5.0
HANDOVER_SECONDS: Final = 0.5
"""How long the release of the lease waits for running binds, so that no two replicas bind at the same time. Most binds
take some hundredths of a second; new calls wait until then."""


class _Running(NamedTuple):
    """What exists between `start` and the end."""

    client: KubeClient
    forwarding: Forwarding | None
    supervision: Supervision
    task: asyncio.Task[None]


class Service:
    """One replica. Use it as a context manager, or `start` and then `stop` or `kill`."""

    def __init__(self, settings: Settings, *, own_process: bool = False) -> None:
        """`own_process`: the service is alone in this process, so it may tune its memory."""
        self.settings = settings
        self.metrics = Metrics()
        self.replica = Replica(elects=settings.leader_election, forwards=bool(settings.advertise))
        self.page = PageUpdates(self.replica)
        self._memory = ProcessMemory(own=own_process)
        self._servers: list[HttpServer] = []
        """The one of the verbs, and the one of insight if it has an address of its own."""
        self._expanders: list[ExpanderServer] = []
        self._certificates: list[Certificates] = []
        self._running: _Running | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """URL of the verbs; empty before the start."""
        return self._servers[0].url if self._servers else ""

    @property
    def insight_url(self) -> str:
        """URL of probes, metrics and insight; empty before the start."""
        return self._servers[-1].url if self._servers else ""

    @property
    def _listening(self) -> list[HttpServer | ExpanderServer]:
        return [*self._servers, *self._expanders]

    async def start(self) -> None:
        """Listen, and begin to watch the cluster. Raises CredentialsError, OSError or ssl.SSLError."""
        ignore_fields(names_in(self.settings.ignored_fields))
        client = await KubeClient.connect(self.settings.client)
        try:
            forwarding = self._forwarding() if self.settings.advertise and self.settings.mode != "shadow" else None
            await self._listen(client, forwarding)
        except BaseException:
            await client.close()
            raise
        self.metrics.read_from(self.replica.readings)
        log.info("listening", verbs=self.url, insight=self.insight_url, version=VERSION, api_server=client.server)
        lease = self.settings.lease(self._servers[0].port)
        supervision = Supervision(client, self.settings, self.metrics, self.replica, lease, self._memory)
        chores = (self._renew_certificates, lambda: observe_lag(self.metrics.lagged))
        task = asyncio.create_task(supervision.run(chores), name="service")
        self._running = _Running(client, forwarding, supervision, task)

    async def wait(self) -> None:
        """Wait until the service fails, which is a bug; the log names it."""
        if self._running is not None:
            await asyncio.wait([self._running.task])

    async def stop(self) -> None:
        """Hand over, answer calls as long as some may arrive, let running binds finish, end everything. All of it takes
        at most the grace period, because Kubernetes counts from the signal.
        """
        if self.replica.leaving:
            return
        self.replica.leaving = True
        log.info("stopping")
        clock = asyncio.get_running_loop().time
        started = clock()
        deadline = started + self.settings.shutdown_grace
        if self._running is not None:
            await self._running.supervision.hand_over(min(HANDOVER_SECONDS, self.settings.shutdown_grace / 2))
        await asyncio.sleep(max(0.0, started + self.settings.shutdown_linger - clock()))
        self.replica.close()
        await self.page.close()
        for server in self._listening[:1]:
            await server.stop(max(0.0, deadline - clock()))
        await self._drain(max(0.0, deadline - clock()))
        for server in self._listening[1:]:
            await server.stop(max(0.0, deadline - clock()))
        await self._end()
        log.info("stopped")

    async def kill(self) -> None:
        """End everything at once: no responses, no rollback, no release of the lease."""
        self.replica.close()
        if self._running is not None:
            await self._running.client.close()
        await self.page.close()
        await self._end()
        for server in self._listening:
            await server.stop(0)

    async def _end(self) -> None:
        if self._running is None:
            return
        client, forwarding, _, task = self._running
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._drain(0)
        if forwarding is not None:
            await forwarding.close()
        await client.close()

    async def _drain(self, seconds: float) -> None:
        if self.replica.engine is not None:
            await self.replica.engine.drain(seconds)

    def _forwarding(self) -> Forwarding:
        """This replica shows its server certificate to others, and trusts the authorities of its clients."""
        return Forwarding(self.replica, self._tls(Certificates, self.settings.tls_client_ca), self.settings.peer_name)

    async def _listen(self, client: KubeClient, forwarding: Forwarding | None) -> None:
        """Serve one application, or two if insight has an address of its own; the verbs over TLS if there is a
        certificate, insight if its clients send tokens. Raises OSError, and ssl.SSLError when the certificate cannot be
        used.
        """
        settings, replica = self.settings, self.replica
        context = VerbContext(
            replica.unavailable, self.metrics, settings.max_body, AllowedClients(settings.client_names), forwarding
        )
        pages = health_router(replica, self.metrics), insight_router(replica), page_router(self.page)
        authorizer = TokenAuthorizer(Reviews(client)) if settings.insight_authorization else None
        separate = bool(settings.insight_listen)
        verbs = verb_routes(lambda: replica.running.extender, context)
        limits, report = ConnectionLimits(connections=settings.max_connections), ConnectionLimitReport(self.metrics)

        def listen(app: ASGIApp, address: str, tls: TLS | None) -> None:
            self._servers.append(HttpServer(app, *split_address(address), tls=tls, limits=limits, report=report))

        try:
            app = create_app(() if separate else pages, authorizer, verbs)
            listen(app, settings.listen, self._tls(ServerCertificates, settings.tls_client_ca))
            if separate:
                tls = self._tls(ServerCertificates) if authorizer is not None else None
                listen(create_app(pages, authorizer), settings.insight_listen, tls)
            if settings.expander_listen and settings.tls_cert and settings.tls_key:
                clients = () if settings.expander_any_client else filter(None, (settings.tls_client_ca,))
                files = (settings.tls_cert, settings.tls_key, *clients)
                where = host_and_port(*split_address(settings.expander_listen))
                self._expanders.append(ExpanderServer(replica, self.metrics, where, files, settings.max_body))
            for server in self._listening:
                await server.start()
        except BaseException:
            for server in self._listening:
                await server.stop(0)
            raise

    def _tls(self, kind: type[Certificates], authorities: Path | None = None) -> TLS | None:
        """With the server certificate; None without one. `authorities`: the other side must show a certificate."""
        settings = self.settings
        if not (settings.tls_cert and settings.tls_key):
            return None
        certificates = kind(settings.tls_cert, settings.tls_key, authorities)
        self._certificates.append(certificates)
        return lambda: certificates.newest

    async def _renew_certificates(self) -> None:
        """Reload changed certificates until cancelled. Returns if TLS is not configured."""
        while self._certificates:
            await asyncio.sleep(CERTIFICATE_PERIOD)
            changed = True in [certificates.check() for certificates in self._certificates]
            for expander in () if self.replica.leaving else self._expanders:
                await expander.renew(changed)


async def serve_until_signalled(settings: Settings) -> int:
    """Run a service as this process. Returns the exit status."""
    loop = asyncio.get_running_loop()
    first, second = asyncio.Event(), asyncio.Event()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (second if first.is_set() else first).set())
    service = Service(settings, own_process=True)
    try:
        await service.start()
    except (CredentialsError, OSError, ssl.SSLError) as problem:
        log.error("cannot start", problem=str(problem))
        return 1
    failed = not await _wins(first.wait(), service.wait())
    stopping = asyncio.create_task(service.stop())
    if not await _wins(stopping, second.wait()):
        log.warning("second signal: ending at once")
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await service.kill()
    return 1 if failed else 0


async def _wins(one: Awaitable[object], other: Awaitable[object]) -> bool:
    """True when `one` ends before `other`; the later one is cancelled."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    won = tasks[0].done()
    tasks[1 if won else 0].cancel()
    return won
