"""Questions to workers that wait to be asked: namespaces are served one after the other, and so are claims in each.

Promises: whoever asks more does not come more often, and gives way first when there are too many questions. To put and
to take one costs the same however many wait; to find who gives way costs a look at the namespaces, and at the claims of
one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

import msgspec

from dra_extender.allocation.questions import Question


class WorkItem(msgspec.Struct, frozen=True, eq=False):
    """A question that waits for its turn. `content`: of the claims it is for."""

    key: Hashable
    question: Question
    content: Hashable


class WorkQueue:
    """By namespace, and in it by content of claims."""

    def __init__(self) -> None:
        self._size = 0
        self._namespaces: dict[str, dict[Hashable, deque[WorkItem]]] = {}
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return self._size

    def put(self, namespace: str, asked: WorkItem) -> None:
        """At the end of what the claims have asked."""
        self._namespaces.setdefault(namespace, {}).setdefault(asked.content, deque()).append(asked)
        self._size += 1
        self._sizes[namespace] = self._sizes.get(namespace, 0) + 1

    def take(self) -> WorkItem:
        """The next question. Its namespace, and its claims in that, are last from now on."""
        namespace, contents = next(iter(self._namespaces.items()))
        content, questions = next(iter(contents.items()))
        found = questions.popleft()
        del self._namespaces[namespace], contents[content]
        if questions:
            contents[content] = questions
        if contents:
            self._namespaces[namespace] = contents
        self._shrink(namespace, 1)
        return found

    def yielded(self, namespace: str, content: Hashable) -> WorkItem | None:
        """The question that gives way to one more of this content: the last of the content that waits with most, in
        the namespace that does. None when that would be the content itself, or another that waits with no more.
        """
        crowded = max(self._sizes, key=self._sizes.__getitem__, default=namespace)
        if self._sizes.get(crowded, 0) <= self._sizes.get(namespace, 0):
            crowded = namespace
        contents = self._namespaces.get(crowded, {})
        longest = max(contents, key=lambda other: len(contents[other]), default=content)
        if crowded == namespace and len(contents.get(longest, ())) <= len(contents.get(content, ())):
            return None
        found = contents[longest].pop()
        if not contents[longest]:
            del contents[longest]
        if not contents:
            del self._namespaces[crowded]
        self._shrink(crowded, 1)
        return found

    def _shrink(self, namespace: str, by: int) -> None:
        self._size -= by
        self._sizes[namespace] -= by
        if not self._sizes[namespace]:
            del self._sizes[namespace]

    def drop(self, content: Hashable) -> Iterable[WorkItem]:
        """Everything that claims of this content have asked."""
        for namespace in list(self._namespaces):
            questions = self._namespaces[namespace].pop(content, ())
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]
            if questions:
                self._shrink(namespace, len(questions))
            yield from questions
