"""The page state: encoded parts by key, and the parts that each subscriber has not received yet.

Promises: pure and bounded. A slow subscriber gets only the last version of a part that changes several times. A
subscriber that reconnects soon gets only the changes since its last message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

REMEMBERED_DROPS: Final = 10_000
"""Removed keys that are remembered for subscribers that reconnect."""
BYTES_OF_BATCH: Final = 2**20


class Batch(NamedTuple):
    """Parts to put, keys to drop, and the number of parts that follow."""

    put: tuple[bytes, ...]
    drop: tuple[str, ...]
    behind: int


class Subscriber:
    """One open page. `notify` is called when there is something to take."""

    def __init__(self, state: PageState, due: Iterator[str], resumed: bool, notify: Callable[[], object]) -> None:
        self.resumed = resumed
        """The parts that it received on an earlier connection are still valid."""
        self.notify = notify
        self._state = state
        self._due = dict.fromkeys(due)

    def mark(self, key: str) -> None:
        """The part has changed."""
        self._due[key] = None

    @property
    def is_behind(self) -> bool:
        return bool(self._due)

    def take(self, most: int) -> Batch:
        """The next parts, up to the first that exceeds `BYTES_OF_BATCH` with those before it."""
        found: list[tuple[str, bytes | None]] = []
        size = 0
        for key in list(islice(self._due, most)):
            if size > BYTES_OF_BATCH:
                break
            del self._due[key]
            found.append((key, self._state.get(key)))
            size += len(found[-1][1] or b"")
        return Batch(
            tuple(part for _, part in found if part is not None),
            tuple(key for key, part in found if part is None),
            len(self._due),
        )


class PageState:
    """Parts by key. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._parts: dict[str, tuple[bytes, int]] = {}
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """Version of the newest drop that is no longer remembered."""
        self._subscribers: dict[Subscriber, None] = {}
        self._changed = False

    def put(self, key: str, part: bytes) -> None:
        """Add or replace a part. An equal part changes nothing."""
        known = self._parts.get(key)
        if known is not None and known[0] == part:
            return
        self.version += 1
        self._parts[key] = part, self.version
        self._dropped.pop(key, None)
        self._mark(key)

    def drop(self, key: str) -> None:
        """Remove a part, if it exists."""
        if self._parts.pop(key, None) is None:
            return
        self.version += 1
        self._dropped[key] = self.version
        while len(self._dropped) > REMEMBERED_DROPS:
            _, self._forgotten = self._dropped.popitem(last=False)
        self._mark(key)

    def get(self, key: str) -> bytes | None:
        known = self._parts.get(key)
        return known[0] if known is not None else None

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._parts if key.startswith(prefix)]

    @property
    def subscribers(self) -> int:
        """The number of subscribers."""
        return len(self._subscribers)

    def subscribe(self, since: int | None, notify: Callable[[], object]) -> Subscriber:
        """A subscriber that has received all versions up to `since`; None: it has received nothing."""
        resumed = since is not None and self._forgotten <= since <= self.version
        due = self._since(since) if since is not None and resumed else iter(list(self._parts))
        subscriber = Subscriber(self, due, resumed, notify)
        self._subscribers[subscriber] = None
        return subscriber

    def _since(self, since: int) -> Iterator[str]:
        yield from [key for key, (_, version) in self._parts.items() if version > since]
        yield from [key for key, version in self._dropped.items() if version > since]

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber, None)

    def publish(self) -> None:
        """Notify the subscribers that are behind, if anything has changed since the last call."""
        if self._changed:
            self._changed = False
            for subscriber in self._subscribers:
                if subscriber.is_behind:
                    subscriber.notify()

    def notify(self) -> None:
        """Notify all subscribers."""
        for subscriber in self._subscribers:
            subscriber.notify()

    def _mark(self, key: str) -> None:
        self._changed = True
        for subscriber in self._subscribers:
            subscriber.mark(key)
