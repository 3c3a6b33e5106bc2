"""The work behind the listeners: one engine per version of the resource API, and what it depends on.

`Supervision` promises: an API server that does not answer, at the start or later, that is upgraded to other versions of
the resource API, or that is set back to an older state, delays the work and never ends it; a withdrawn version is
noticed within seconds. After a set-back a new engine lists everything: nothing that the old one knew is used. Until
then another replica may lead. A bug ends all work at once and is named in `Replica.failure`: with half of its tasks,
the service would answer calls and never requeue a pod. The permissions of `needed` suffice for these settings; a
missing one is logged once, at the start rather than at the first pod. Without an optional one the replica is Ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec
import structlog

from dra_extender.api.errors import ApiError, SetBackError
from dra_extender.api.features import ABSENT, release_of
from dra_extender.kube import access
from dra_extender.kube.client import KubeClient
from dra_extender.kube.lease import LeaderElection, LeaseSettings
from dra_extender.kube.reflector import Backoff
from dra_extender.kube.resources import Served, discover
from dra_extender.scheduling.ports import Observer
from dra_extender.scheduling.setaside import ANNOTATION
from dra_extender.service.engine import Engine
from dra_extender.service.process import ProcessMemory, Watchdog
from dra_extender.service.replica import Replica
from dra_extender.service.settings import Settings

log = structlog.get_logger(__name__)

PERIOD: Final = 5.0
"""Seconds between two checks of versions and of missing permissions."""
EVERY: Final = 12
"""Periods between two questions for the version of an API server whose watches work."""
_NOT_SERVED: Final = "not served"

Chore = Callable[[], Coroutine[Any, Any, None]]
"""Work that does not need the API server."""


class WithdrawnError(Exception):
    """The API server no longer serves the versions that the engine uses."""


@dataclass(slots=True, eq=False)
class Supervision:
    """One per service."""

    _client: KubeClient
    _settings: Settings
    _observer: Observer
    _replica: Replica
    _lease: LeaseSettings
    _memory: ProcessMemory

    async def run(self, chores: Iterable[Chore] = ()) -> None:
        """Work until cancelled, or until a bug, which is logged. `chores` run at the same time."""
        try:
            async with asyncio.TaskGroup() as group:
                for chore in chores:
                    group.create_task(chore())
                while True:
                    self._memory.let_go()
                    self._replica.served = await until_served(self._client)
                    await self._decide(self._replica.served)
        except* Exception as problems:
            self._replica.failure = "; ".join(f"{type(each).__name__}: {each}" for each in _leaves(problems))
            log.exception("the service cannot continue", problem=self._replica.failure)

    async def hand_over(self, seconds: float) -> None:
        """Release the lease, if any: when running binds have ended, at the latest after these seconds. Longer binds
        continue.
        """
        replica, election = self._replica, self._replica.election
        if election is None:
            return
        if replica.engine is not None and replica.leading:
            await replica.engine.extender.binder.wait(seconds)
        await election.release()

    async def _decide(self, served: Served) -> None:
        """Work with these versions until the API server withdraws one, or is set back. Running binds end as in a crash
        then.
        """
        for gate in ABSENT[self._settings.features(served.server_version).release]:
            if f"{gate}=" in self._settings.feature_gates:
                log.error("feature gate that the release of the API server does not have", gate=gate)
        engine = Engine(self._client, served, self._settings, self._observer, self._memory)
        self._replica.engine = engine
        self._replica.missing = ()
        missing = partial(setattr, self._replica, "missing")
        try:
            async with asyncio.TaskGroup() as group:
                await self._elect(engine, group)
                group.create_task(check_permissions(self._client, needed(self._settings, served), missing))
                group.create_task(until_withdrawn(self._client, served, lambda: engine.watches.not_found))
                for job in engine.jobs():
                    group.create_task(job)
        except* (WithdrawnError, SetBackError) as ended:
            self._replica.engine = None
            set_back = ended.subgroup(SetBackError)
            if set_back is not None:
                self._replica.set_backs += 1
                self._replica.last_set_back = str(next(_leaves(set_back)))
                log.error("the API server was set back: listing everything again", shown=self._replica.last_set_back)
            await engine.drain(0)
            if self._replica.election is not None:
                await self._replica.election.release()
                self._replica.election = None  # it reports to the engine that has ended

    async def _elect(self, engine: Engine, group: asyncio.TaskGroup) -> None:
        """Decide while this replica leads; without leader election, always. The lease names the pods that are set
        aside, so it is read before anything is decided.
        """

        def lead(leading: bool) -> None:
            engine.lead(leading and self._settings.mode != "advisor")

        if not self._settings.leader_election:
            lead(True)
            return
        if self._replica.leaving:  # it has given the lease back, or will not get one
            return
        election = LeaderElection(self._client, self._lease, on_change=lead, fit=self._replica.could_lead)
        self._replica.election = election
        # Binds that started before the release of the lease may end: the lease is for order, not for safety.
        engine.extender.leading = lambda: election.leading or election.released
        engine.extender.set_aside.annotation = lambda: election.annotation(ANNOTATION)
        with suppress(ApiError):
            await election.look()
        group.create_task(election.run())
        if self._memory.own:
            group.create_task(Watchdog(self._settings.client, self._lease, engine.extender.set_aside_with).run())


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """The exceptions in a group, however deeply nested."""
    for problem in group.exceptions:
        if isinstance(problem, BaseExceptionGroup):
            yield from _leaves(problem)
        else:
            yield problem


async def until_served(client: KubeClient) -> Served:
    """Ask until the API server serves resource.k8s.io/v1. A problem is logged when it changes."""
    backoff = Backoff(0.5, 10.0)
    reported = ""
    while True:
        try:
            served = await discover(client)
        except ApiError as problem:
            pause = backoff.next()
            if reported != problem.message:
                reported = problem.message
                log.warning(
                    "API server not usable yet, will retry",
                    api_server=client.server,
                    problem=problem.message,
                    retry_in=round(pause, 1),
                )
            await asyncio.sleep(pause)
        else:
            versions = {"kubernetes": served.server_version, **_versions(served)}
            log.info("API server found", api_server=client.server, **versions)
            return served


async def until_withdrawn(client: KubeClient, served: Served, suspected: Callable[[], bool]) -> None:
    """Raises WithdrawnError when the server serves other versions, or was upgraded to a release with other rules. Asks
    while `suspected`, and otherwise once in `EVERY` periods.
    """
    for period in count(1):
        await asyncio.sleep(PERIOD)
        if not suspected() and period % EVERY:
            continue
        try:
            now = await discover(client)
        except ApiError as problem:
            log.warning("watches fail, and the served versions are unknown", problem=problem.message)
            continue
        if release_of(now.server_version) > release_of(served.server_version):
            log.warning(
                "the API server was upgraded: restarting with its rules",
                was=served.server_version,
                now=now.server_version,
            )
            raise WithdrawnError
        if msgspec.structs.replace(now, server_version=served.server_version) != served:
            log.warning(
                "the API server serves other versions: restarting with the versions it serves now",
                was=_versions(served),
                now=_versions(now),
            )
            raise WithdrawnError


def _versions(served: Served) -> dict[str, str]:
    groups = ", ".join(map("/".join, served.pod_groups))
    found = {"taint_rules": served.taint_rules, "pod_groups": groups}
    return {name: version or _NOT_SERVED for name, version in found.items()}


def needed(settings: Settings, served: Served) -> tuple[access.Permission, ...]:
    permissions = access.permissions_for_reading(served, budgets=settings.preemption != "off")
    if settings.writes:
        permissions += access.BINDING + access.permissions_for_waking(settings.namespace)
        if settings.features(served.server_version).DRAExtendedResource:
            permissions += access.EXTENDED_RESOURCES
        if settings.preemption == "on":
            permissions += (access.PREEMPTION,)
        permissions += access.PROVISIONING if settings.provisioning_requests else ()
    if settings.leader_election:
        permissions += access.permissions_for_lease(settings.namespace, settings.lease_name)
    if settings.insight_authorization:
        permissions += access.READERS
    return permissions


async def check_permissions(
    client: KubeClient, permissions: Sequence[access.Permission], tell: Callable[[Sequence[access.Permission]], object]
) -> None:
    """Tell which permissions are missing, until none is. If the server does not answer before it has denied anything,
    the check ends with a line in the log.
    """
    known: Sequence[access.Permission] = ()
    while True:
        try:
            missing = await access.missing_permissions(client, permissions)
        except ApiError as problem:
            log.warning("permissions not checked", problem=problem.message)
        else:
            for each in missing:
                if each not in known:
                    log.error("permission missing", permission=str(each))
            known = missing
            tell(missing)
        if not known:
            return
        await asyncio.sleep(PERIOD)
