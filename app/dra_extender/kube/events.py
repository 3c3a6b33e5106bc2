"""Events on pods and claims: what `kubectl describe` shows people about our decisions.

`EventRecorder` promises: `record` never waits and never fails; the same event on the same object again becomes one
event with a count. Namespaces take turns. The queue is bounded: when it is full, the namespace with most events loses
one, which is counted. The API server gets `rate` requests per second, and `BURST` more after a pause. Events are
advice: losing one never changes a decision. A note is printable, of at most 1 KiB.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
import structlog
from cachetools import LRUCache

from dra_extender.api.core import ObjectReference
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError, NotFoundError
from dra_extender.api.meta import Object, ObjectMeta, format_micro_time
from dra_extender.fairqueue import FairQueue
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import segment
from dra_extender.plaintext import printable

log = structlog.get_logger(__name__)

CONTROLLER = "dra-extender"
_NOTE_BYTES = 1024
RATE: Final = 50.0
BURST: Final = 100
"""Requests per second and burst of kube-scheduler's client (clientConnection, Kubernetes 1.36)."""
_SERIES_SECONDS = 360.0
"""An event repeated within this time is counted on the existing event; later ones are new events."""


class EventSeries(Object, frozen=True, gc=False):
    count: int
    last_observed_time: str


class Event(msgspec.Struct, frozen=True, rename="camel", tag_field="kind", tag="Event"):
    """events.k8s.io/v1 Event. `regarding` is the object that it happens to. The recorder fills in what has a default,
    except `type`.
    """

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"
    api_version: str = "events.k8s.io/v1"
    metadata: ObjectMeta = ObjectMeta()
    event_time: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""

    def __post_init__(self) -> None:
        # The recorder keeps no more of a note than it sends: the one of a pod with 1,023 claims has 0.3 MB.
        note = printable(self.note, _NOTE_BYTES)
        if len(data := note.encode()) > _NOTE_BYTES:
            note = data[: _NOTE_BYTES - 3].decode("utf-8", "ignore") + "…"
        msgspec.structs.force_setattr(self, "note", note)


class _Written(msgspec.Struct):
    path: str
    count: int
    at: float


@dataclass(slots=True, eq=False)
class EventRecorder:
    """Takes events without waiting; `run` sends them until cancelled."""

    _client: KubeClient
    _instance: str
    controller: str = CONTROLLER
    size: int = 2000
    rate: float = RATE
    clock: Callable[[], float] = time.monotonic
    dropped: int = 0
    sent: int = 0
    _serial: int = 0
    _queue: FairQueue[Event] = field(default_factory=FairQueue)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _written: LRUCache[tuple[str, ...], _Written] = field(default_factory=lambda: LRUCache(4096))

    def record(self, event: Event) -> None:
        """Queue it. When too many wait already, drop it or one of the namespace with most."""
        namespace = event.regarding.namespace
        if len(self._queue) >= self.size:
            self.dropped += 1
            if self._queue.evict_for(namespace, None) is None:
                return
        self._queue.put(namespace, None, event)
        self._news.set()

    async def run(self) -> None:
        """Until cancelled: send the next one, then leave the API server in peace for a moment."""
        due = 0.0
        while True:
            while not len(self._queue):
                self._news.clear()
                await self._news.wait()
            await self.send(self._queue.take())
            now = self.clock()
            due = max(due, now - BURST / self.rate) + 1 / self.rate
            await asyncio.sleep(max(0.0, due - now))

    async def send(self, event: Event) -> None:
        """One request at most, or two when the event to be counted on has expired. Never raises ApiError."""
        key = _key(event)
        before = self._written.get(key)
        try:
            recent = before if before is not None and self.clock() - before.at < _SERIES_SECONDS else None
            if recent is None or not await self._is_counted(recent):
                self._written[key] = await self._create(event)
            self.sent += 1
        except ApiError as problem:
            self.dropped += 1
            log.debug("event not written", reason=event.reason, problem=problem.message)

    async def _create(self, event: Event) -> _Written:
        namespace = event.regarding.namespace or "default"
        self._serial += 1
        now = datetime.now(UTC)
        about = event.regarding.name[:180].rstrip("-.")  # a cut name may not end so
        name = f"{about}.{int(now.timestamp() * 1e9):x}{self._serial & 0xFFF:03x}"
        written = msgspec.structs.replace(
            event,
            metadata=ObjectMeta(name=name, namespace=namespace),
            event_time=format_micro_time(now),
            reporting_controller=self.controller,
            reporting_instance=self._instance[:128],
        )
        collection = f"/apis/events.k8s.io/v1/namespaces/{segment(namespace)}/events"
        await self._client.create(collection, encode(written), timeout=5.0)
        return _Written(f"{collection}/{segment(name)}", 1, self.clock())

    async def _is_counted(self, written: _Written) -> bool:
        """Count it once more. False when the event has expired."""
        written.count += 1
        written.at = self.clock()
        series = EventSeries(count=written.count, last_observed_time=format_micro_time(datetime.now(UTC)))
        try:
            await self._client.patch(written.path, encode({"series": series}), timeout=5.0)
        except NotFoundError:
            return False
        return True


def _key(event: Event) -> tuple[str, ...]:
    regarding = event.regarding
    return (regarding.namespace, regarding.kind, regarding.name, regarding.uid, event.reason, event.note)
