"""The queue of everything that namespaces share: deferred work, diagnoses, events, and parts of the page.

Promises: namespaces take turns, and within a namespace its contents do. A namespace that puts many items in delays an
item of another namespace by one item per turn. `put` and `take` cost the same however long the queue is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """`content`: items of one content are taken in the order in which they were put."""

    def __init__(self) -> None:
        self._size = 0
        self._namespaces: dict[str, dict[Hashable, deque[T]]] = {}
        """Ordered by turn, and so are the contents of each namespace."""
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return self._size

    def put(self, namespace: str, content: Hashable, item: T) -> None:
        """Append to the items of this content."""
        self._namespaces.setdefault(namespace, {}).setdefault(content, deque()).append(item)
        self._grow(namespace, 1)

    def take(self) -> T:
        """The next item. Its namespace moves to the end, and so does its content within the namespace."""
        namespace, by_content = next(iter(self._namespaces.items()))
        content, items = next(iter(by_content.items()))
        item = items.popleft()
        del self._namespaces[namespace], by_content[content]
        if items:
            by_content[content] = items
        if by_content:
            self._namespaces[namespace] = by_content
        self._grow(namespace, -1)
        return item

    def take_alike(self) -> Iterable[T]:
        """The next item, and all others of its content in its namespace. The namespace moves to the end."""
        namespace, by_content = next(iter(self._namespaces.items()))
        items = by_content.pop(next(iter(by_content)))
        del self._namespaces[namespace]
        if by_content:
            self._namespaces[namespace] = by_content
        self._grow(namespace, -len(items))
        return items

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
        if not by_content:
            del self._namespaces[longest]
        self._grow(longest, -1)
        return item

    def drop(self, content: Hashable) -> Iterable[T]:
        """Remove all items of this content."""
        for namespace in list(self._namespaces):
            items = self._namespaces[namespace].pop(content, ())
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]
            if items:
                self._grow(namespace, -len(items))
            yield from items

    def _grow(self, namespace: str, by: int) -> None:
        self._size += by
        self._sizes[namespace] = self._sizes.get(namespace, 0) + by
        if not self._sizes[namespace]:
            del self._sizes[namespace]
