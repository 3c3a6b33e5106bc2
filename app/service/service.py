"""The composition root: listeners, the connection to the API server, election, and the life of all of it.

`Service` promises: it listens at once and answers 503 until it may decide; an API server that is away at the start or
later, or that is upgraded to other versions of the resource API, delays it and never ends it; `stop` hands back what it
holds (running binds finish within the grace period, the lease is released), `kill` does none of that, as a crash would.
Several services can live in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Self

import structlog

from app.api.errors import ApiError
from app.api.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from app.devices.audit import Violation
from app.http.application import create_app, create_insight_app
from app.http.health import Check
from app.http.insight import insight_router
from app.http.metrics import Metrics, Reading
from app.http.protocol import ConnectionLimits
from app.http.server import HttpServer
from app.http.tls import Certificates
from app.kube.access import (
    Permission,
    missing_permissions,
    permissions_for_binding,
    permissions_for_extended_resources,
    permissions_for_lease,
    permissions_for_reading,
    permissions_for_waking,
)
from app.kube.backoff import Backoff
from app.kube.client import KubeClient
from app.kube.discovery import Served, discover
from app.kube.lease import LeaderElection
from app.scheduling.state import State
from app.service.engine import Engine
from app.service.settings import Settings, split_address
from app.version import VERSION

log = structlog.get_logger(__name__)

_CERTIFICATE_PERIOD = 5.0
_LAG_PERIOD = 0.25
_PERMISSIONS_PERIOD = 5.0
_VERSION_PERIOD = 5.0
_UNREACHED = "the API server has not been reached yet"


class _WithdrawnError(Exception):
    """The API server no longer serves what the engine was made for."""


class Service:
    """One replica. Use it as a context manager, or `start` and then `stop` or `kill`."""

    def __init__(self, settings: Settings, *, own_process: bool = False) -> None:
        """`own_process`: nothing else of importance lives in this process, so its memory may be tuned for us."""
        self.settings = settings
        self.metrics = Metrics()
        self.engine: Engine | None = None
        self.url = ""
        self.insight_url = ""
        self._own_process = own_process
        self._client: KubeClient | None = None
        self._served: Served | None = None
        self._election: LeaderElection | None = None
        self._servers: list[HttpServer] = []
        self._certificates: Certificates | None = None
        self._missing_permissions: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._failure = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- life ---

    async def start(self) -> None:
        """Listen and begin to follow the cluster. Raises CredentialsError, OSError or ssl.SSLError."""
        settings = self.settings
        if settings.tls_cert and settings.tls_key:
            self._certificates = Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._client = await KubeClient.connect(settings.client)
        try:
            self._make_servers()
            for server in self._servers:
                await server.start()
        except BaseException:
            for server in self._servers:
                await server.stop()
            await self._client.close()
            raise
        self.metrics.read_from(self._readings)
        log.info("listening", verbs=self.url, insight=self.insight_url, version=VERSION, api_server=self._client.server)
        self._task = asyncio.create_task(self._run(self._client), name="service")

    async def wait(self) -> None:
        """Until the service can do its work no more, which is a bug; the log tells it."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def until_ready(self, timeout: float = 60.0) -> None:
        """Until the verbs are served. Raises TimeoutError naming what is missing."""
        try:
            async with asyncio.timeout(timeout):
                while self.unavailable():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise TimeoutError(f"not ready after {timeout:g} s: {self.unavailable()}") from None

    async def stop(self) -> None:
        """Stop accepting, let running binds finish, release the lease, end everything. What waits for others to finish
        takes no longer than the grace period, all of it together: who kills processes counts from the signal.
        """
        if self._stopping:
            return
        self._stopping = True
        log.info("stopping")
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.shutdown_grace
        for server in self._servers[:1]:
            await server.stop()
        if self.engine is not None:
            await self.engine.drain(max(0.0, deadline - clock()))
        if self._election is not None:
            await self._election.release()
        for server in self._servers[1:]:
            await server.stop(max(0.0, deadline - clock()))
        await self._end()
        log.info("stopped")

    async def kill(self) -> None:
        """End everything at once: no answers, no undoing, no release of the lease."""
        self._stopping = True
        if self._client is not None:
            await self._client.close()
        await self._end()
        for server in self._servers:
            await server.kill()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.engine is not None:
            await self.engine.drain(0)
        if self._client is not None:
            await self._client.close()

    def _make_servers(self) -> None:
        settings = self.settings
        separate = bool(settings.insight_listen)
        insight = (insight_router(self),)
        app = create_app(
            self,
            unavailable=self.unavailable,
            metrics=self.metrics,
            max_body=settings.max_body,
            health=None if separate else self,
            insight=() if separate else insight,
        )
        tls = self._certificates.context if self._certificates else None
        self._servers = [self._server(app, settings.listen, tls)]
        self.url = self.insight_url = self._servers[0].url
        if separate:
            app = create_insight_app(self, self.metrics, insight)
            self._servers.append(self._server(app, settings.insight_listen, None))
            self.insight_url = self._servers[1].url

    def _server(self, app: Any, address: str, tls: Any) -> HttpServer:
        host, port = split_address(address)
        settings = self.settings
        limits = ConnectionLimits(request_seconds=settings.request_timeout, idle_seconds=settings.keep_alive)
        return HttpServer(
            app, host, port, tls=tls, keep_alive=settings.keep_alive, grace=settings.shutdown_grace, limits=limits
        )

    # --- what runs all the time ---

    async def _run(self, client: KubeClient) -> None:
        """Everything behind the listeners. Ends only when cancelled, or by a mistake that is told."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_lag())
                if self._certificates is not None:
                    group.create_task(self._watch_certificates(self._certificates))
                while True:
                    self._served = await self._discover(client)
                    await self._decide(client, self._served)
        except* Exception as problems:
            self._failure = "; ".join(f"{type(problem).__name__}: {problem}" for problem in _leaves(problems))
            log.exception("the service cannot go on", problem=self._failure)

    async def _decide(self, client: KubeClient, served: Served) -> None:
        """Work with this version of the API until the server withdraws it. Binds under way end as in a crash then."""
        engine = Engine(client, served, self.settings, self.metrics, own_process=self._own_process)
        self.engine = engine
        try:
            async with asyncio.TaskGroup() as group:
                self._start_election(client, group)
                group.create_task(self._check_permissions(client, served))
                group.create_task(self._watch_version(client, served, engine))
                for job in engine.jobs():
                    group.create_task(job)
        except* _WithdrawnError:
            self.engine = None
            await engine.drain(0)

    async def _watch_version(self, client: KubeClient, served: Served, engine: Engine) -> None:
        """Raises _WithdrawnError when the server has other versions instead, after an upgrade for example."""
        while True:
            await asyncio.sleep(_VERSION_PERIOD)
            if not engine.watches.not_found:
                continue
            try:
                now = await discover(client)
            except ApiError as problem:
                log.warning("cannot follow, and cannot ask which versions are served", problem=problem.message)
                continue
            if (now.version, now.taint_rules) != (served.version, served.taint_rules):
                log.warning(
                    "the API server has withdrawn a version: beginning anew with what it serves now",
                    was=served.version,
                    now=now.version,
                    taint_rules_were=served.taint_rules or "not served",
                    taint_rules_now=now.taint_rules or "not served",
                )
                raise _WithdrawnError

    async def _discover(self, client: KubeClient) -> Served:
        """What the API server offers, asked until it answers."""
        backoff = Backoff(0.5, 10.0)
        told = ""
        while True:
            try:
                served = await discover(client)
            except ApiError as problem:
                pause = backoff.next()
                if told != problem.message:
                    told = problem.message
                    log.warning(
                        "API server not usable yet, will retry",
                        api_server=client.server,
                        problem=problem.message,
                        retry_in=round(pause, 1),
                    )
                await asyncio.sleep(pause)
            else:
                log.info(
                    "API server found",
                    api_server=client.server,
                    kubernetes=served.server_version,
                    resource_api=served.version,
                    taint_rules=served.taint_rules or "not served",
                )
                return served

    def _start_election(self, client: KubeClient, group: asyncio.TaskGroup) -> None:
        if self.settings.leader_election:
            election = LeaderElection(client, self.settings.lease, on_change=self._leadership)
            self._election = election
            if self.engine is not None:
                self.engine.fence(lambda: election.leading)
            group.create_task(self._election.run())
        else:
            self._leadership(True)

    def _leadership(self, leading: bool) -> None:
        if self.engine is not None:
            self.engine.lead(leading and not self.settings.advise_only)

    async def _check_permissions(self, client: KubeClient, served: Served) -> None:
        """Say at the start which permissions are missing, not when the first pod needs them; until they are there."""
        permissions = self._permissions(served)
        while True:
            try:
                found = tuple(await missing_permissions(client, permissions))
            except ApiError as problem:
                log.warning("permissions not checked", problem=problem.message)
                return
            for missing in found:
                if missing not in self._missing_permissions:
                    log.error("permission missing", permission=missing)
            self._missing_permissions = found
            if not found:
                return
            await asyncio.sleep(_PERMISSIONS_PERIOD)

    def _permissions(self, served: Served) -> tuple[Permission, ...]:
        """All permissions that the service uses with these settings."""
        permissions = permissions_for_reading(taint_rules=bool(served.taint_rules))
        if not self.settings.advise_only:
            permissions += permissions_for_binding() + permissions_for_waking(self.settings.namespace)
            if self.settings.features.DRAExtendedResource:
                permissions += permissions_for_extended_resources()
        if self.settings.leader_election:
            permissions += permissions_for_lease(self.settings.namespace, self.settings.lease_name)
        return permissions

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD
            await asyncio.sleep(_LAG_PERIOD)
            self.metrics.lagged(max(0.0, loop.time() - due))

    async def _watch_certificates(self, certificates: Certificates) -> None:
        while True:
            await asyncio.sleep(_CERTIFICATE_PERIOD)
            certificates.check()

    # --- the verbs, once there is something to decide with ---

    def unavailable(self) -> str:
        """Why no decision may be made now; empty when it may."""
        if self._stopping:
            return "shutting down"
        if self._failure:
            return f"failed: {self._failure}"
        if self.engine is None:
            return _UNREACHED
        if self._missing_permissions:
            return f"permission missing: {self._missing_permissions[0]}"
        if self._election is not None and not self._election.leading:
            return f"standby: {self._election.holder or 'nobody'} leads"
        return self.engine.unavailable()

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        return await self._engine.extender.filter(args)

    def prioritize(self, args: ExtenderArgs) -> Sequence[HostPriority]:
        return self._engine.extender.prioritize(args)

    def advise(self, args: ExtenderArgs) -> Sequence[HostPriority]:
        return self._engine.extender.advise(args)

    def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        return self._engine.extender.preempt(args)

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        return await self._engine.extender.bind(args)

    @property
    def _engine(self) -> Engine:
        if self.engine is None:
            raise RuntimeError("the verbs are not available yet")
        return self.engine

    # --- insight ---

    def unknown(self) -> str:
        """Why nothing can be said about the cluster; empty when it can. A standby knows it, too."""
        if self.engine is None:
            return _UNREACHED
        return "" if self.engine.watches.synced else self.engine.unavailable()

    @property
    def state(self) -> State:
        return self._engine.extender.state

    def violations(self) -> Sequence[Violation]:
        return self._engine.audit.current

    def missing_permissions(self) -> Sequence[str]:
        return self._missing_permissions

    # --- health ---

    def live(self) -> Sequence[Check]:
        return [Check(name="tasks", ok=not self._failure, problem=self._failure)]

    def ready(self) -> Sequence[Check]:
        reason = self.unavailable()
        checks = [Check(name="verbs", ok=not reason, problem=reason)]
        return checks + (self.engine.checks() if self.engine is not None else [])

    @property
    def kubernetes(self) -> tuple[str, str, str]:
        served = self._served or Served("")
        return served.server_version, served.version, self._client.server if self._client else ""

    def _readings(self) -> Iterator[Reading]:
        yield Reading("ready", float(not self.unavailable()))
        yield Reading("leading", float(self._election is None or self._election.leading))
        if self.engine is not None:
            yield from self.engine.readings()


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """The exceptions in a group, however deep."""
    for problem in group.exceptions:
        if isinstance(problem, BaseExceptionGroup):
            yield from _leaves(problem)
        else:
            yield problem
