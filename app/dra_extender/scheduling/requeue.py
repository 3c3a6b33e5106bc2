"""Requeueing of refused pods: kube-scheduler retries them when one of them may fit.

kube-scheduler does not retry pods that an extender refused when ResourceSlices change. If another event makes it retry
them, the watches of this process may not have the change yet. So each refusal is stored with the revision of the
state that it was decided on. When a newer revision exists, the service annotates the requeue trigger, a ResourceClaim
of its own. The update makes kube-scheduler retry all unschedulable pods.

Promises: at most one requeue per `requeue_interval`, none while no refused pod waits; a failed requeue is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog
from cachetools import LRUCache

from dra_extender.api.errors import ApiError
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import REQUEUES
from dra_extender.scheduling.ports import Observer

log = structlog.get_logger(__name__)

REMEMBERED = 10_000


class RequeueTrigger:
    """`revision` grows with every change after which a refused pod may fit."""

    def __init__(self, requeue: Callable[[], Awaitable[None]], config: SchedulingConfig, observer: Observer) -> None:
        self.revision = 0
        self._requeue = requeue
        self._config = config
        self._observer = observer
        self._requeued = -1
        self._unknown_pods = False
        self._refused: LRUCache[str, int] = LRUCache(config.remembered_pods)
        self.pods: Mapping[str, int] = self._refused
        """The refused pods by UID, with the revision of the state of their last refusal."""
        self._oldest_forgotten = -2
        """The oldest revision of a refusal that made room for others and has not been requeued."""
        self._awaited: dict[str, set[int]] = {}
        """Refused pods wait for these: claims (namespace/name) that do not exist or are wrong, keys of gangs, UIDs of
        claims in flight and of pods being bound, `WORKERS`. By namespace, empty for UIDs. A full set stands for any.
        Hashes: users write the names, which may be long.
        """
        self._due = asyncio.Event()

    def improved(self) -> None:
        """A refused pod may fit now."""
        self.revision += 1
        self._awaited.clear()
        if self._refused or self._oldest_forgotten >= self._requeued:
            self._due.set()

    def ended(self, awaited: str) -> None:
        """A bind or write has ended, or a claim has appeared, for which refused pods may wait by this name."""
        names = self._awaited.get(awaited.rpartition("/")[0], ())
        if hash(awaited) in names or len(names) >= REMEMBERED:
            self.improved()

    def refused(self, pod_uid: str, revision: int, awaiting: Iterable[str] = ()) -> None:
        """The pod was refused on some or all nodes, by a decision on the state of `revision`. `awaiting`: what `ended`
        will name; the pod may fit then.
        """
        for name in awaiting:
            names = self._awaited.setdefault(name.rpartition("/")[0], set())
            if len(names) < REMEMBERED:
                names.add(hash(name))
        if pod_uid not in self._refused and len(self._refused) >= self._refused.maxsize:
            # However many pods of a namespace are refused, those of others are still requeued.
            _, oldest = self._refused.popitem()
            if oldest >= self._requeued and not self._requeued <= self._oldest_forgotten <= oldest:
                self._oldest_forgotten = oldest
        self._refused[pod_uid] = revision
        if revision < self.revision:
            self._due.set()

    def requeue_all(self) -> None:
        """Requeue also the pods that an earlier process refused: this process does not know them."""
        self._unknown_pods = True
        self._due.set()

    def forget(self, pod_uid: str) -> None:
        """The pod no longer waits: it fits, is bound, or is gone."""
        self._refused.pop(pod_uid, None)

    @property
    def waiting(self) -> bool:
        """True when a pod was refused in an older revision and has not been requeued since."""
        now = self.revision
        if self._requeued >= now:
            return self._unknown_pods
        forgotten = self._requeued <= self._oldest_forgotten < now
        return self._unknown_pods or forgotten or any(revision < now for revision in self._refused.values())

    async def run(self) -> None:
        """Requeue when it is due, until cancelled."""
        pause = self._config.requeue_interval
        while True:
            await self._due.wait()
            self._due.clear()
            if not self.waiting:
                continue
            revision, unknown_pods = self.revision, self._unknown_pods
            self._unknown_pods = False
            try:
                await self._requeue()
            except ApiError as error:
                self._observer.count(REQUEUES, "failed")
                log.warning("requeueing refused pods failed, retrying", error=repr(error), seconds=pause)
                self._unknown_pods = self._unknown_pods or unknown_pods
                self._due.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, max(self._config.retry_most_seconds, self._config.requeue_interval))
            else:
                self._observer.count(REQUEUES, "triggered")
                self._requeued = revision
                pause = self._config.requeue_interval
                await asyncio.sleep(pause)
