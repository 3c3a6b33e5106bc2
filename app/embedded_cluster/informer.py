"""A local copy of one kind of objects, with indexes and subscribers: what every controller reads.

`Informer` promises: `objects` is as new as the watch or the replies handed to `observe`, whichever is newer; an older
event never replaces a newer reply; subscribers hear of each change once, as (old, new), with None for absent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from cachetools import LRUCache

from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.kube.client import KubeClient
from dra_extender.kube.mirror import Named
from dra_extender.kube.reflector import Reflector
from dra_extender.kube.resources import Resource

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
        self._reflector = Reflector(
            client,
            resource,
            self._watched,
            on_synced=self.synced.set,
            selector=selector,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        await self._reflector.run()

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
