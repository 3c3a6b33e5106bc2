"""One watch of one client: what happened to the objects it selected, as lines ready to send.

A `Watcher` listens to a collection from a revision on and queues lines in order; an object that starts or stops
matching the selector appears as ADDED or DELETED. It never waits for its client: one that falls more than
`MOST_PENDING` lines behind is ended, and the client lists again.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.representation import Representation
from embedded_cluster.apiserver.selectors import Selector
from embedded_cluster.apiserver.statuses import JSON, StatusError, expired
from embedded_cluster.apiserver.storage import ADDED, DELETED, MODIFIED, Collection, StorageEvent, Stored, frame

MOST_PENDING: Final = 200_000
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Watcher:
    """Queues lines until `close`; `take` hands them out in batches."""

    def __init__(
        self,
        collection: Collection,
        resource: ServedResource,
        namespace: str,
        selector: Selector,
        representation: Representation,
    ) -> None:
        self._collection = collection
        self._resource = resource
        self._namespace = namespace
        self._selector = selector
        self._encode = representation.event
        self._pending: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        self._after = 0
        self.closed = False

    def start(self, revision: int, *, initial: list[Stored] | None = None, end_at: int | None = None) -> None:
        """Begin after `revision`. `initial` objects come first, as ADDED, followed by the bookmark that ends them
        when `end_at` gives its revision. A revision that is forgotten becomes an ERROR line and ends the watch."""
        self._after = revision
        try:
            missed = [] if initial is not None else self._collection.since(revision)
        except StatusError as error:
            self.fail(error)
            return
        for stored in initial or ():
            self._queue(self._encode(ADDED, StorageEvent(ADDED, stored, None)))
        if end_at is not None:
            self.bookmark(end_at, {INITIAL_EVENTS_END: "true"})
        for event in missed:
            self.hear(event)
        self._collection.listeners.append(self.hear)

    def hear(self, event: StorageEvent) -> None:
        """Queue an event if this client sees it."""
        if event.revision <= self._after or self.closed:
            return
        kind = self._seen_as(event)
        if kind is not None:
            self._queue(self._encode(kind, event))

    def _seen_as(self, event: StorageEvent) -> str | None:
        stored = event.stored
        if self._namespace and stored.key[0] != self._namespace:
            return None
        if self._selector.matches is None:
            return event.type
        before = event.previous is not None and self._selector.accepts(event.previous)
        if event.type == DELETED:
            return DELETED if before else None
        now = self._selector.accepts(stored)
        if now:
            return MODIFIED if before else ADDED
        return DELETED if before else None

    def _queue(self, line: bytes) -> None:
        self._pending.append(line)
        if len(self._pending) > MOST_PENDING:
            self.close()
        self._wake()

    def say(self, line: bytes) -> None:
        """Queue a line that stands for no event of ours: a fault."""
        self._queue(line)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> None:
        """Queue a bookmark: how far the client is."""
        metadata: JSON = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        body = orjson.dumps({"metadata": metadata})[1:]
        self._queue(frame("BOOKMARK", self._resource, body))

    def fail(self, error: StatusError) -> None:
        """Queue an error and end."""
        self._queue(b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.body()))
        self.close()

    def expire(self) -> None:
        """End with 410, as a watch that lost its place does."""
        self.fail(expired("The resourceVersion for the provided watch is too old."))

    def close(self) -> None:
        """No more events; what is queued can still be taken."""
        self.closed = True
        if self.hear in self._collection.listeners:
            self._collection.listeners.remove(self.hear)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def take(self, timeout: float) -> list[bytes]:
        """The queued lines; waits up to `timeout` seconds for the first. Empty when none came in time or it is
        closed."""
        if not self._pending and not self.closed:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout):
                    await self._waiting
            except TimeoutError:
                pass
            finally:
                self._waiting = None
        lines, self._pending = self._pending, []
        return lines
