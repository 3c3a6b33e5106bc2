"""What every controller works with: a local copy of one kind of objects, and a queue of keys to work on.

`Informer` promises: `objects` is as new as the watch or the replies handed to `observe`, whichever is newer; an older
event never replaces a newer reply; subscribers hear of each change once, as (old, new), with None for absent.

`RateLimitedQueue` promises: one worker at a time handles a key; a key added while it waits is handled once; a key added
while it is handled is handled once more; a failed key is retried with growing pauses and never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import structlog
from cachetools import LRUCache

from dra_extender.api.errors import ApiError, SetBackError
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.kube.client import KubeClient
from dra_extender.kube.knownobjects import KnownObjects, Named
from dra_extender.kube.reflector import Reflector
from dra_extender.kube.resources import Resource
from dra_extender.unexpected import unexpected

T = TypeVar("T", bound=Named)

Index = Callable[[T], Iterable[str]]
"""The values under which an object is found."""
Subscriber = Callable[[T | None, T | None], object]


class Informer(Generic[T]):
    """Feed it by `run`, in a task of its own."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        *,
        indexes: Mapping[str, Index[T]] | None = None,
        selector: Mapping[str, str] | None = None,
    ) -> None:
        self.resource = resource
        self.objects: dict[str, T] = {}
        self.synced = asyncio.Event()
        self._indexes = dict(indexes or {})
        self._indexed: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._indexes}
        self._subscribers: list[Subscriber[T]] = []
        self._gone: LRUCache[str, None] = LRUCache(4096)
        self._reflector: Callable[[], Reflector[T]] = lambda: Reflector(
            client, KnownObjects(resource, self._watched), on_synced=self.synced.set, selector=selector or {}
        )

    async def run(self) -> None:
        """Run until cancelled. When the API server shows an older version than before, list again."""
        while True:
            try:
                await self._reflector().run()
            except SetBackError as problem:
                log.warning("the API server shows an older state", shown=problem.message)

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Notify it of every change from now on."""
        self._subscribers.append(subscriber)

    def get(self, namespace: str, name: str) -> T | None:
        return self.objects.get(f"{namespace}/{name}" if namespace else name)

    def find(self, index: str, value: str) -> list[T]:
        """The objects for which the index has this value, in no particular order."""
        return list(self._indexed[index].get(value, {}).values())

    def observe(self, obj: T) -> None:
        """Take the reply of an own write as if the watch had brought it already."""
        if obj.metadata.uid not in self._gone:
            self._apply(obj)

    def _watched(self, event: ClusterEvent) -> None:
        if isinstance(event, Applied):
            self._apply(event.object)
        elif isinstance(event, Removed) and event.uid is not None:
            self._removed(event.key.name, event.uid)

    def _apply(self, obj: T) -> None:
        key = obj.metadata.key
        old = self.objects.get(key)
        if old is not None and old.metadata.uid == obj.metadata.uid and old.metadata.version >= obj.metadata.version:
            return
        self.objects[key] = obj
        self._reindex(key, old, obj)
        self._notify(old, obj)

    def _removed(self, key: str, uid: str) -> None:
        self._gone[uid] = None
        known = self.objects.get(key)
        if known is None or known.metadata.uid != uid:
            return
        del self.objects[key]
        self._reindex(key, known, None)
        self._notify(known, None)

    def _reindex(self, key: str, old: T | None, new: T | None) -> None:
        for name, values_of in self._indexes.items():
            index = self._indexed[name]
            for value in values_of(old) if old is not None else ():
                found = index.get(value)
                if found is not None:
                    found.pop(key, None)
                    if not found:
                        del index[value]
            for value in values_of(new) if new is not None else ():
                index.setdefault(value, {})[key] = new  # type: ignore[assignment]  # new is not None in here

    def _notify(self, old: T | None, new: T | None) -> None:
        for subscriber in self._subscribers:
            subscriber(old, new)


log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class RateLimitedQueue(Generic[K]):
    """Calls `handle(key)` for every key. `run` never returns."""

    def __init__(self, name: str, handle: Callable[[K], Awaitable[object]], *, workers: int = 4) -> None:
        self._name = name
        self._handle = handle
        self._workers = workers
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Work on it as soon as possible."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Work on it after this many seconds; the earliest of several times counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        when = loop.time() + max(seconds, 0.0)
        if timer is not None and timer.when() <= when:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    def idle(self) -> bool:
        """True when nothing waits and nothing is being worked on (pauses after failures do not count)."""
        return not self._waiting and not self._busy

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait for the next key and work on it once."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._busy.add(key)
        try:
            await self._handle(key)
        except ApiError as problem:
            self._failed(key, problem.message)
        except Exception as problem:  # a controller outlives every mistake
            unexpected("controller", problem, queue=self._name, key=key)
            self._failed(key, str(problem))
        else:
            self._failures.pop(key, None)
        finally:
            self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    def _failed(self, key: K, problem: str) -> None:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        log.debug("will try again", queue=self._name, key=key, problem=problem, attempts=count)
        self.add_after(key, min(_FIRST_PAUSE * 2 ** (count - 1), _LONGEST_PAUSE))
