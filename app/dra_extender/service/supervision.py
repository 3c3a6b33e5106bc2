"""What runs all the time behind the listeners: one engine per version of the resource API, and what it depends on.

`Supervision` promises: an API server that is away at the start or later, or that is upgraded to other versions of the
resource API, delays the work and never ends it. A mistake of ours ends all of it at once and is named in `Status`:
half a service would answer and never wake anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import structlog

from dra_extender.http.metrics import Metrics
from dra_extender.kube.client import KubeClient
from dra_extender.kube.discovery import Served
from dra_extender.kube.lease import LeaderElection, LeaseSettings
from dra_extender.service.apiversion import until_served, until_withdrawn
from dra_extender.service.engine import Engine
from dra_extender.service.permissions import missing_until_granted, needed
from dra_extender.service.settings import Settings
from dra_extender.service.status import Status

log = structlog.get_logger(__name__)

Chore = Callable[[], Coroutine[Any, Any, None]]
"""Work that goes on whether or not there is an API server."""


class _WithdrawnError(Exception):
    """The API server no longer serves what the engine was made for."""


class Supervision:
    """One per service. `run` works until cancelled; `chores` run beside it."""

    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        metrics: Metrics,
        status: Status,
        *,
        fit: Callable[[], bool],
        lease: LeaseSettings,
        chores: Sequence[Chore] = (),
        own_process: bool = False,
    ) -> None:
        """`fit`: whether this replica could lead."""
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._status = status
        self._fit = fit
        self._lease = lease
        self._chores = chores
        self._own_process = own_process

    async def run(self) -> None:
        """Until cancelled, or until a mistake, which is logged."""
        try:
            async with asyncio.TaskGroup() as group:
                for chore in self._chores:
                    group.create_task(chore())
                while True:
                    self._status.served = await until_served(self._client)
                    await self._decide(self._status.served)
        except* Exception as problems:
            self._status.failure = "; ".join(f"{type(each).__name__}: {each}" for each in _leaves(problems))
            log.exception("the service cannot go on", problem=self._status.failure)

    async def hand_over(self, seconds: float) -> None:
        """Leave the lease to another replica, where there is one: once binds under way have ended, or after so many
        seconds. Binds that take longer go on.
        """
        if self._status.election is None:
            return
        if self._status.engine is not None and self._status.leading:
            await self._status.engine.settle(seconds)
        await self._status.election.release()

    async def drain(self, seconds: float) -> None:
        """Until binds under way have ended, no longer than that; then they end as in a crash."""
        if self._status.engine is not None:
            await self._status.engine.drain(seconds)

    async def _decide(self, served: Served) -> None:
        """Work with this version of the API until the server withdraws it. Binds under way end as in a crash then."""
        engine = Engine(self._client, served, self._settings, self._metrics, own_process=self._own_process)
        self._status.engine = engine
        self._status.missing_permissions = ()
        try:
            async with asyncio.TaskGroup() as group:
                self._elect(engine, group)
                group.create_task(self._check_permissions(served))
                group.create_task(self._watch_version(served, engine))
                for job in engine.jobs():
                    group.create_task(job)
        except* _WithdrawnError:
            self._status.engine = None
            await engine.drain(0)

    def _elect(self, engine: Engine, group: asyncio.TaskGroup) -> None:
        """Decide while this replica leads, or always when there is no election."""

        def lead(leading: bool) -> None:
            engine.lead(leading and not self._settings.advise_only)

        if not self._settings.leader_election:
            lead(True)
            return
        election = LeaderElection(self._client, self._lease, on_change=lead, fit=self._fit)
        self._status.election = election
        # What began before the lease was given back may end: the lease is for order.
        engine.fence(lambda: election.leading or election.released)
        group.create_task(election.run())

    async def _check_permissions(self, served: Served) -> None:
        async for missing in missing_until_granted(self._client, needed(self._settings, served)):
            self._status.missing_permissions = missing

    async def _watch_version(self, served: Served, engine: Engine) -> None:
        """Raises _WithdrawnError, which ends the engine."""
        await until_withdrawn(self._client, served, lambda: engine.watches.not_found)
        raise _WithdrawnError


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """The exceptions in a group, however deep."""
    for problem in group.exceptions:
        if isinstance(problem, BaseExceptionGroup):
            yield from _leaves(problem)
        else:
            yield problem
