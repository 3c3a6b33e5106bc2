"""List and watch of one kind, until cancelled; and the watches of all kinds that decisions read.

`Reflector` promises: after every failure it tries again, with growing and jittered pauses. A watch that the API server
ends at its time is continued at the last resourceVersion. After every other end the reflector lists again, because the
API server may have been set back meanwhile; it then applies all differences without an await. Lists are consistent
reads in pages: a list from the watch cache (resourceVersion=0) could be older than known objects, which would then look
deleted. A reflector whose API server was set back ends with SetBackError: what it has reported is no longer true.

`Watches` promises: `apply` gets the events of every kind, one at a time; `on_synced` is called once, after the first
list of every kind; a kind whose watch fails does not stop the others. Optional kinds count neither as a gap nor for
`synced`: the permission for them may be missing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
import structlog

from dra_extender.api.errors import ApiError, GoneError, NotServedError, SetBackError
from dra_extender.api.events import ClusterEvent
from dra_extender.kube.client import KubeClient
from dra_extender.kube.knownobjects import ContinuityCheck, KnownObjects, Named, SetAsideReason
from dra_extender.kube.resources import PODS, Served, list_pages, watched_kinds
from dra_extender.unexpected import unexpected


class Backoff:
    """Growing pauses: each is about twice the previous one, from `first` up to `most` seconds."""

    def __init__(self, first: float = 0.5, most: float = 15.0, *, chance: Callable[[], float] = random.random) -> None:
        self._first = self._pause = first
        self._most = most
        self._chance = chance

    def next(self) -> float:
        """Seconds to wait now: between half and all of the current pause."""
        pause = self._pause * (0.5 + 0.5 * self._chance())
        self._pause = min(self._pause * 2, self._most)
        return pause

    def reset(self) -> None:
        self._pause = self._first


log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Named)

_BATCH_OBJECTS = 100
"""Objects decoded in one turn of the event loop, at most."""
_BATCH_BYTES = 2**20
"""A batch ends with the object that reaches this size."""
_LONGEST_PAUSE = 60.0
"""Seconds until the next attempt, whatever a Retry-After says."""
_LOG_PERIOD = 30.0
"""Seconds between log lines about the same problem."""
_TURN = 0.005
"""Seconds of watch events that are applied before the event loop goes on."""
_STEADY = 5.0
"""A watch that stays open for this many seconds works: the pause after it is short."""


@dataclass(eq=False)
class Reflector(Generic[T]):
    """Lists and watches one kind. `run` never returns; cancel it to stop. It raises SetBackError only."""

    _client: KubeClient
    known: KnownObjects[T]
    on_synced: Callable[[], object] = lambda: None
    """Called after the first list."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """fieldSelector and labelSelector"""
    backoff: Backoff = field(default_factory=Backoff)
    clock: Callable[[], float] = time.monotonic
    synced: bool = False
    """True after the first complete list."""
    lists: int = 0
    """Complete lists so far."""
    problem: str = ""
    """Why the last list or watch failed; empty when it did not."""
    not_found: bool = False
    """True when the API server answered the last request with 404: it does not serve the kind."""
    _watching: bool = False
    _ended_in_time: bool = False
    _failed_watches: int = 0
    _reported: tuple[str, float] = ("", float("-inf"))

    def __post_init__(self) -> None:
        self.resource = self.known.resource
        self._worked_at = self._opened_at = self.clock()

    @property
    def behind(self) -> float:
        """Seconds since the watch last worked; 0 while it works."""
        return 0.0 if self._works else self.clock() - self._worked_at

    @property
    def _works(self) -> bool:
        """True while a watch is open. After a watch that failed on its first event, the next one works only after a
        good event, or after `_STEADY` seconds.
        """
        return self._watching and (not self._failed_watches or self.clock() - self._opened_at > _STEADY)

    async def run(self) -> None:
        """Repeat `step` until cancelled, with the pauses that it returns."""
        while True:
            pause = await self.step()
            if pause:
                await asyncio.sleep(pause)

    async def step(self) -> float:
        """One list if needed, then one watch until it ends. Returns the seconds to wait before the next step. Raises
        SetBackError.
        """
        started = self.clock()
        try:
            if not self._ended_in_time:
                await self._list()
                started = self.clock()
            self._ended_in_time = False
            self._ended_in_time = await self._watch()
        except SetBackError:
            raise
        except GoneError as problem:
            log.info("resourceVersion expired, listing again", kind=self.resource.kind, reason=problem.message)
        except ApiError as problem:
            return self._failed(problem)
        except Exception as problem:  # a bug must not end the loop
            unexpected("watch", problem, kind=self.resource.kind)
            return self._failed(ApiError(0, "Internal", f"{type(problem).__name__}: {problem}"))
        finally:
            if self._works:
                self._worked_at = self.clock()
            if self._watching:
                self._watching = False
                if self.clock() - self._opened_at > _STEADY:
                    self.backoff.reset()
        # The API server may end every watch at once: such a watch is followed by a pause.
        return 0.0 if self.clock() - started > 1.0 else self.backoff.next()

    async def _list(self) -> None:
        """Apply the first list batch by batch, and every later one without an await: when one object of a version is
        known, all earlier changes of other objects are, as after a watch. Binds rely on it to find rivals.
        """
        self.known.begin_list()
        version = ""
        async for page in list_pages(self._client, self.resource, self.selector):
            items, version = page.items or [], page.metadata.resource_version
            for batch in batches(items):
                self.known.listed(batch)
                if not self.synced:
                    self.known.report()
                await asyncio.sleep(0)
        self.known.end_list(version)
        self.lists += 1
        self._worked_at = self.clock()
        self._failed_watches = min(self._failed_watches, 1)  # the next watch has not shown yet that it works
        self._connected()
        if not self.synced:
            self.synced = True
            log.info("synced", kind=self.resource.kind, objects=len(self.known))
            self.on_synced()

    async def _watch(self) -> bool:
        """Watch until the API server ends it. True when its time was over, and not much more."""
        started, seconds = self.clock(), random.randint(300, 600)
        params = {
            **self.selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.known.version,
            "timeoutSeconds": str(seconds),
        }
        async with aclosing(self._client.stream(self.resource.path(), params, on_open=self._connected)) as lines:
            turn = self.clock()
            async for line in lines:
                self._apply_line(line)
                if self.clock() - turn > _TURN:  # hundreds of events may have arrived at once
                    await asyncio.sleep(0)
                    turn = self.clock()
        return seconds <= self.clock() - started < seconds + _STEADY

    def _apply_line(self, line: bytes) -> None:
        """Apply one event. Raises as `KnownObjects.watched`."""
        try:
            self.known.watched(line)
        except (GoneError, SetBackError):
            raise
        except Exception:
            self._failed_watches = 1 if self._works else self._failed_watches + 1
            raise
        self._worked_at = self.clock()
        self._failed_watches, self.problem = 0, ""
        self.backoff.reset()

    def _connected(self) -> None:
        if not self._watching:
            self._watching = True
            self._opened_at = self.clock()
        self.not_found = False
        if not self._failed_watches:
            self.problem = ""

    def _failed(self, problem: ApiError) -> float:
        pause = max(self.backoff.next(), min(getattr(problem, "retry_after", 0.0), _LONGEST_PAUSE))
        self.problem = problem.message
        self.not_found = isinstance(problem, NotServedError)
        reported, when = self._reported
        if reported != problem.message or self.clock() - when >= _LOG_PERIOD:
            self._reported = (problem.message, self.clock())
            log.warning(
                "list or watch failed, will retry",
                kind=self.resource.kind,
                problem=problem.message,
                status=problem.status,
                retry_in=round(pause, 1),
            )
        return pause


def batches(items: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """All items in order, in batches that one turn of the event loop can decode."""
    start = size = 0
    for end, item in enumerate(items, start=1):
        size += len(memoryview(item))
        if size >= _BATCH_BYTES or end - start == _BATCH_OBJECTS or end == len(items):
            yield items[start:end]
            start, size = end, 0


UNFINISHED_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""As kube-scheduler's informer: a pod that finishes counts as removed."""


class Watches:
    """A reflector per kind. `run` never returns; cancel it to stop. It raises SetBackError, in a group, only."""

    def __init__(
        self,
        client: KubeClient,
        served: Served,
        apply: Callable[[ClusterEvent], object],
        *,
        budgets: bool = False,
        on_synced: Callable[[], object] = lambda: None,
        continuity: ContinuityCheck | None = None,
        set_aside: SetAsideReason = lambda key: "",
    ) -> None:
        """`budgets`: watch PodDisruptionBudgets, too. `set_aside`: see `KnownObjects`."""
        self._on_synced = on_synced
        self.synced = False
        """True after the first list of every kind."""
        self.reflectors = tuple(
            Reflector(
                client,
                KnownObjects(resource, apply, continuity, set_aside),
                on_synced=self._one_synced,
                selector=UNFINISHED_PODS if resource is PODS else {},
            )
            for resource in watched_kinds(served, budgets=budgets)
        )

    @property
    def not_found(self) -> bool:
        """True when the API server does not serve a kind: its version may have been withdrawn."""
        return any(reflector.not_found for reflector in self.reflectors)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")

    def _one_synced(self) -> None:
        if not self.synced and all(each.synced or each.resource.optional for each in self.reflectors):
            self.synced = True
            self._on_synced()
