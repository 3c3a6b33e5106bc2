"""List and watch of one kind, until cancelled.

`Reflector` promises: it survives every failure and tries again; a cut watch goes on where it was; when the server no
longer has the events in between (410), or watches bring nothing but a failure, the list is read again and the
differences are reported in one step; pauses after failures grow and are jittered; `progress` shows at any moment how
current the picture is. Lists are consistent reads in pages: a list from some API server's cache (resourceVersion=0)
could be older than what was seen already and make existing objects look deleted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

import msgspec
import structlog

from dra_extender.api.errors import ApiError, GoneError, NotFoundError
from dra_extender.api.events import ClusterEvent
from dra_extender.kube.client import KubeClient
from dra_extender.kube.mirror import Mirror, Named
from dra_extender.kube.pages import list_pages
from dra_extender.kube.resources import Resource
from dra_extender.unexpected import unexpected


class Backoff:
    """Each `next` is about twice the one before, from `first` up to `most` seconds; `reset` starts over."""

    def __init__(self, first: float = 0.5, most: float = 15.0, *, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._most = most
        self._chance = chance
        self._pause = first

    def next(self) -> float:
        """Seconds to wait now: between half and all of the current pause."""
        pause = self._pause * (0.5 + 0.5 * self._chance())
        self._pause = min(self._pause * 2, self._most)
        return pause

    def reset(self) -> None:
        self._pause = self._first


log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Named)

_BREATH = 100
"""Objects decoded in one go before other work on the event loop gets a turn, unless they are large:"""
_MOUTHFUL = 2**20
"""bytes in one go, and what one more object has."""
_QUIET = 30.0
"""Seconds between log lines about the same problem."""
_STEADY = 5.0
"""Seconds after which a watch that ends counts as having worked: the next attempt need not wait long."""
_FRUITLESS = 3
"""How many watches in a row may fail on what they bring first, before the list is read again."""
_TOO_NEW = "Too large resource version"


class Progress(msgspec.Struct, frozen=True):
    """How far a reflector is. `behind`: seconds since the watch was last known to work, 0 while it does. `stuck`: how
    often watches made no progress, so that the kind was listed again.
    """

    kind: str
    synced: bool
    objects: int
    undecodable: int
    version: str
    behind: float
    lists: int
    watches: int
    events: int
    problem: str = ""
    stuck: int = 0


class Reflector(Generic[T]):
    """Brings the events of one kind. `run` never returns; cancel it to stop."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        apply: Callable[[ClusterEvent], object],
        *,
        on_synced: Callable[[], object] = lambda: None,
        selector: Mapping[str, str] | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`selector` holds fieldSelector and labelSelector; `apply` gets the events."""
        self.resource = resource
        self._client = client
        self._mirror = Mirror(resource, apply)
        self._on_synced = on_synced
        self._selector = dict(selector or {})
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._synced = False
        self._alive_at = clock()
        self._opened_at = self._alive_at
        self._watching = False
        self._fruitless = 0
        self._lists = self._watches = self._events = self._stuck = 0
        self._problem = ""
        self._not_found = False
        self._reported = ("", -_QUIET)

    @property
    def synced(self) -> bool:
        """True once a whole list has been reported."""
        return self._synced

    @property
    def behind(self) -> float:
        """Seconds since the watch was last known to work; 0 while it does."""
        return 0.0 if self._works else self._clock() - self._alive_at

    @property
    def _works(self) -> bool:
        """True while a watch is open; after one that brought a failure first, the next has to bring something else, or
        to stay open for a while.
        """
        return self._watching and (not self._fruitless or self._clock() - self._opened_at > _STEADY)

    @property
    def not_found(self) -> bool:
        """True when the server, asked last, knew no such kind of objects."""
        return self._not_found

    def progress(self) -> Progress:
        return Progress(
            kind=self.resource.kind,
            synced=self._synced,
            objects=len(self._mirror),
            undecodable=self._mirror.undecodable,
            version=self._mirror.version,
            behind=self.behind,
            lists=self._lists,
            watches=self._watches,
            events=self._events,
            stuck=self._stuck,
            problem=self._problem,
        )

    async def run(self) -> None:
        """Take steps until cancelled; after one that failed, wait a little."""
        while True:
            pause = await self.step()
            if pause:
                await asyncio.sleep(pause)

    async def step(self) -> float:
        """One list if needed, then one watch until it ends. Returns the seconds to wait before the next step."""
        started = self._clock()
        try:
            if not self._mirror.version:
                await self._list()
            await self._watch()
        except GoneError as problem:
            log.info("events are gone, listing again", kind=self.resource.kind, reason=problem.message)
            self._mirror.version = ""
        except ApiError as problem:
            return self._failed(problem)
        except Exception as problem:  # the loop outlives every mistake
            unexpected("watch", problem, kind=self.resource.kind)
            return self._failed(ApiError(0, "Internal", f"{type(problem).__name__}: {problem}"))
        finally:
            self._left()
        # Some pause is needed for a server that ends every watch at once.
        return 0.0 if self._clock() - started > 1.0 else self._backoff.next()

    async def _list(self) -> None:
        """The first list is reported page by page, any other in one step: a reader that has seen a version of one
        object then has seen every earlier version of all others, as with a watch. Binds that look for rivals count on
        that.
        """
        self._mirror.begin_list()
        version = ""
        async for page in list_pages(self._client, self.resource, self._selector):
            items, version = page.items or [], page.metadata.resource_version
            for portion in portioned(items):
                self._mirror.listed(portion)
                if not self._synced:
                    self._mirror.report()
                await asyncio.sleep(0)
        self._mirror.end_list(version)
        self._lists += 1
        self._alive_at = self._clock()
        self._fruitless = min(self._fruitless, 1)  # the next watch has to show that it works, and gets its tries
        self._alive()
        if not self._synced:
            self._synced = True
            log.info("synced", kind=self.resource.kind, objects=len(self._mirror))
            self._on_synced()

    async def _watch(self) -> None:
        params = self._selector | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._mirror.version,
            "timeoutSeconds": str(random.randint(300, 600)),
        }
        self._watches += 1
        async with aclosing(self._client.stream(self.resource.path(), params, on_open=self._alive)) as lines:
            async for line in lines:
                self._take_in(line)

    def _take_in(self, line: bytes) -> None:
        """One event. Raises what the mirror raises; what failed comes again with the next watch."""
        try:
            self._mirror.watched(line)
        except GoneError:
            raise
        except Exception:
            self._fruitless = 1 if self._works else self._fruitless + 1
            raise
        self._events += 1
        self._alive_at = self._clock()
        self._fruitless, self._problem = 0, ""
        self._backoff.reset()

    def _alive(self) -> None:
        if not self._watching:
            self._watching = True
            self._opened_at = self._clock()
        self._not_found = False
        if not self._fruitless:
            self._problem = ""

    def _left(self) -> None:
        if self._works:
            self._alive_at = self._clock()
        if self._watching:
            self._watching = False
            if self._clock() - self._opened_at > _STEADY:
                self._backoff.reset()

    def _failed(self, problem: ApiError) -> float:
        if _TOO_NEW in problem.message:
            self._mirror.version = ""  # the server was set back, from a backup for example: what we know is its future
        elif self._fruitless >= _FRUITLESS and self._mirror.version:
            self._list_anew(problem)
        pause = max(self._backoff.next(), getattr(problem, "retry_after", 0.0))
        self._problem = problem.message
        self._not_found = isinstance(problem, NotFoundError)
        reported, when = self._reported
        if reported != problem.message or self._clock() - when >= _QUIET:
            self._reported = (problem.message, self._clock())
            log.warning(
                "cannot follow, will retry",
                kind=self.resource.kind,
                problem=problem.message,
                status=problem.status,
                retry_in=round(pause, 1),
            )
        return pause

    def _list_anew(self, problem: ApiError) -> None:
        """No watch from this version gets any further."""
        self._stuck += 1
        log.warning(
            "watches make no progress, listing again",
            kind=self.resource.kind,
            version=self._mirror.version,
            watches=self._fruitless,
            problem=problem.message,
        )
        self._mirror.version = ""


def portioned(items: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """All of them, in order, as many at a time as can be decoded in one go."""
    start = size = 0
    for end, item in enumerate(items, start=1):
        size += len(memoryview(item))
        if size >= _MOUTHFUL or end - start == _BREATH or end == len(items):
            yield items[start:end]
            start, size = end, 0
