"""The watches of one service: what happens at the API server arrives later, twice, or not until the next list."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dra_extender.api.core import Node, Pod
from dra_extender.api.errors import SetBackError
from dra_extender.api.events import Applied, PartialAllocation, Removed, Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.api.scheduling import PodGroup
from dra_extender.devices.cluster import Continuity
from dra_extender.scheduling.extender import Extender
from tests.support.simulation.api import Api
from tests.support.simulation.objects import KubernetesObject

KINDS: tuple[type, ...] = (Node, Pod, ResourceSlice, DeviceClass, ResourceClaim, PodGroup)
LATE = 0.01


class Watch:
    """Brings commits to one service, `lag` seconds later (or as `lags` says for a kind), those of one kind in order.

    `alive = False` stops it for good. `repeat`: how often each event is repeated. `disconnect` loses what happens
    from then on, `reconnect` brings the difference between what was seen and what is there, in one step; both for some
    kinds or for all. A pod that has finished counts as gone, an object that cannot be decoded is reported as such.
    """

    def __init__(self, api: Api, sink: Extender, lag: float, continuity: Continuity) -> None:
        self.sink = sink
        self.set_back: Callable[[], None] = lambda: None
        """Called when a list has shown that the API server was set back. Nothing of the list is brought."""
        self._continuity = continuity
        self._complete: dict[type, int] = {}
        """By kind: the version up to which everything was brought."""
        self.lag = lag
        self.lags: dict[type, float] = {}
        self.alive = True
        self.repeat = 0
        self.hit: Counter[str] = Counter()
        """How often which trouble has come, in words."""
        self._api = api
        self._at: dict[type, float] = {}
        self._paused: list[tuple[Any, bool, bool, int]] | None = None
        self._connections: defaultdict[type, int] = defaultdict(int)
        self._down: dict[type, float] = {}
        self._due: set[type] = set()
        """What a paused replica lists when it goes on."""
        self._seen: dict[tuple[type, str], Any] = {}
        self._spoiled: set[tuple[type, str]] = set()
        for obj in list(api.objects.values()):
            self._bring(obj, removed=_is_over(obj), spoiled=self._is_spoiled(obj))
        self._complete = dict.fromkeys(KINDS, api.version)

    def seen(self, kind: type) -> list[Any]:
        """The objects of a kind as they were brought last, and can be read."""
        return [obj for key, obj in self._seen.items() if key[0] is kind and key not in self._spoiled]

    def behind(self) -> float:
        """Seconds since the first of the kinds that are disconnected was connected; 0 while all are."""
        now = asyncio.get_running_loop().time()
        return max((now - since for since in self._down.values()), default=0.0)

    def pause(self) -> None:
        self._paused = self._paused or []

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for event in waiting:
            self._deliver(*event)
        self.reconnect(self._due)
        self._due.clear()

    def disconnect(self, kinds: Iterable[type] = KINDS) -> None:
        for kind in kinds:
            self._down.setdefault(kind, asyncio.get_running_loop().time())

    def reconnect(self, kinds: Iterable[type] = KINDS) -> None:
        for kind in list(kinds):
            if self._paused is not None:
                self._due.add(kind)
            elif self.alive and self._down.pop(kind, None) is not None:
                self._list(kind)

    def _list(self, kind: type) -> None:
        self.hit["relist of a kind"] += 1
        self._connections[kind] += 1
        now = {key: obj for key, obj in self._api.objects.items() if key[0] is kind and not _is_over(obj)}
        if not self._follows(kind, now):
            self.alive = False
            self.set_back()
            return
        self._complete[kind] = self._api.version
        for key, obj in now.items():
            known = self._seen.get(key)
            if known is not None and known.metadata.uid != obj.metadata.uid:
                self._bring(known, removed=True)
            if known is not obj:
                self._bring(obj, spoiled=self._is_spoiled(obj), after_gap=True)
        for key, obj in list(self._seen.items()):
            if key[0] is kind and key not in now:
                self._bring(obj, removed=True)

    def _follows(self, kind: type, now: Mapping[tuple[type, str], KubernetesObject]) -> bool:
        """False when the list shows that the API server was set back. What cannot be decoded says nothing."""
        self._continuity.begin_list(kind.__name__)
        try:
            for key, obj in now.items():
                if key not in self._spoiled and not self._is_spoiled(obj):
                    self._continuity.listed(obj, self._complete[kind])
            self._continuity.end_list(kind.__name__, self._api.version)
        except SetBackError:
            return False
        return self._api.version >= self._complete[kind]

    def _is_spoiled(self, obj: KubernetesObject) -> bool:
        return (type(obj), obj.metadata.key) in self._api.unreadable

    def send(self, obj: KubernetesObject, *, removed: bool) -> None:
        loop, kind = asyncio.get_running_loop(), type(obj)
        lag = self.lags.get(kind, self.lag)
        self.hit["watch event late"] += lag > LATE
        at = loop.time() + lag
        self._at[kind] = at = max(self._at.get(kind, 0.0) + 1e-9, at)
        gone = removed or _is_over(obj)
        loop.call_at(at, self._deliver, obj, gone, self._is_spoiled(obj), self._connections[kind])

    def _deliver(self, obj: KubernetesObject, removed: bool, spoiled: bool, connection: int) -> None:
        if not self.alive:
            return
        if type(obj) in self._down or connection != self._connections[type(obj)]:
            self.hit["watch event lost"] += 1
            return
        if self._paused is not None:
            self._paused.append((obj, removed, spoiled, connection))
            return
        self._complete[type(obj)] = max(obj.metadata.version, self._complete[type(obj)])
        self.hit["watch event repeated"] += self.repeat
        for _ in range(1 + self.repeat):
            self._bring(obj, removed=removed, spoiled=spoiled)

    def _bring(
        self, obj: KubernetesObject, *, removed: bool = False, spoiled: bool = False, after_gap: bool = False
    ) -> None:
        key = (type(obj), obj.metadata.key)
        was_spoiled = key in self._spoiled
        self._spoiled.discard(key)
        if removed:
            known = self._seen.pop(key, None)
            if known is not None or was_spoiled:
                self.sink.apply(Removed.of(known or obj))
            return
        self._seen[key] = obj
        if spoiled:
            self._spoiled.add(key)
            self.hit["undecodable object"] += 1
            name = ObjectKey(type(obj).__name__, obj.metadata.key)
            self.sink.apply(Undecodable(name, "cannot be decoded", _partial(obj)))
        else:
            self.sink.apply(Applied(obj, "list" if after_gap or was_spoiled else "watch"))


def _is_over(obj: KubernetesObject) -> bool:
    """Pods are followed until they have finished."""
    return isinstance(obj, Pod) and obj.status.phase in ("Succeeded", "Failed")


def _partial(obj: KubernetesObject) -> PartialAllocation | None:
    """What can be read of a claim that cannot be decoded: its devices, or in every other version only their pools."""
    if not isinstance(obj, ResourceClaim):
        return None
    results = obj.allocation.devices.results if obj.allocation is not None else ()
    if obj.metadata.version % 2 or not results:
        return PartialAllocation(obj.metadata.uid, results)
    pools = {(result.driver, result.pool): None for result in results}
    return PartialAllocation(obj.metadata.uid, complete=False, pools=tuple(pools))
