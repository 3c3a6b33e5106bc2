"""The queue of everything that namespaces share: deferred work, diagnoses, events, and parts of the page.

Promises: the next item is of the namespace that has used least, as in start-time fair queueing: an item costs one unit,
and `charge` adds what it costs beyond that. A namespace that had no items begins at the use of the namespace
being served, so it gains nothing for the time before. Namespaces that have used the same take turns, and within a
namespace its contents do. The cost of `put` and `take` grows with the logarithm of the number of namespaces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """`content`: items of one content are taken in the order in which they were put."""

    def __init__(self) -> None:
        self._size = 0
        self._namespaces: dict[str, dict[Hashable, deque[T]]] = {}
        """The contents of each namespace are ordered by turn."""
        self._sizes: dict[str, int] = {}
        self._used: dict[str, float] = {}
        """Units, of the namespaces that wait or have used more than `_least`."""
        self._least = 0.0
        """What the namespace that was served last had used then."""
        self._serials = count()
        self._turns: list[tuple[float, int, str]] = []
        """A heap of units used, serial number and namespace. Entries that are not in `_turn` are out of date."""
        self._turn: dict[str, tuple[float, int, str]] = {}

    def __len__(self) -> int:
        return self._size

    def put(self, namespace: str, content: Hashable, item: T) -> None:
        if namespace not in self._namespaces:
            self._namespaces[namespace] = {}
            self.charge(namespace, 0)
        self._namespaces[namespace].setdefault(content, deque()).append(item)
        self._grow(namespace, 1)

    def charge(self, namespace: str, units: float) -> None:
        """Count what the namespace has used, before or after its item is taken."""
        self._used[namespace] = used = max(self._used.get(namespace, 0.0), self._least) + units
        if namespace not in self._namespaces:
            return
        self._turn[namespace] = entry = used, next(self._serials), namespace
        heappush(self._turns, entry)
        if len(self._turns) > 2 * len(self._turn) + 16:
            self._turns = list(self._turn.values())
            heapify(self._turns)
            self._used = {
                name: units for name, units in self._used.items() if name in self._turn or units > self._least
            }

    def take(self) -> T:
        """The next item. Its content moves to the end within the namespace. Raises IndexError when empty."""
        namespace, content, items = self._next()
        item = items.popleft()
        if items:
            self._namespaces[namespace][content] = items
        self._grow(namespace, -1)
        self.charge(namespace, 1)
        return item

    def take_alike(self) -> Iterable[T]:
        """The next item, and all others of its content, in any namespace, as one item of its namespace."""
        namespace, content, items = self._next()
        self._grow(namespace, -len(items))
        self.charge(namespace, 1)
        return (*items, *self.drop(content))

    def _next(self) -> tuple[str, Hashable, deque[T]]:
        """Remove the content that is next."""
        entry = heappop(self._turns)
        while self._turn.get(entry[-1]) is not entry:
            entry = heappop(self._turns)
        self._least, _, namespace = entry
        by_content = self._namespaces[namespace]
        content = next(iter(by_content))
        return namespace, content, by_content.pop(content)

    def evict_for(self, namespace: str, content: Hashable) -> T | None:
        """Remove the last item of the longest content in the longest namespace; None when neither is longer than this
        one.
        """
        longest = max(self._sizes, key=self._sizes.__getitem__, default=namespace)
        if self._sizes.get(longest, 0) <= self._sizes.get(namespace, 0):
            longest = namespace
        by_content = self._namespaces.get(longest, {})
        evicted = max(by_content, key=lambda other: len(by_content[other]), default=content)
        if longest == namespace and len(by_content.get(evicted, ())) <= len(by_content.get(content, ())):
            return None
        item = by_content[evicted].pop()
        if not by_content[evicted]:
            del by_content[evicted]
        self._grow(longest, -1)
        return item

    def drop(self, content: Hashable) -> Iterable[T]:
        for namespace in list(self._namespaces):
            items = self._namespaces[namespace].pop(content, ())
            if items:
                self._grow(namespace, -len(items))
            yield from items

    def _grow(self, namespace: str, by: int) -> None:
        self._size += by
        self._sizes[namespace] = self._sizes.get(namespace, 0) + by
        if self._sizes[namespace]:
            return
        del self._sizes[namespace], self._namespaces[namespace], self._turn[namespace]
        if not self._size:
            self._least = max(self._used.values())
            self._used.clear()
