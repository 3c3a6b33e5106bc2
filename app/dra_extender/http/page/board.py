"""What the page shows, as encoded parts under keys, and who still has to hear of which.

Promises: pure and bounded. A reader that is slow never gets behind by more than everything there is: of a part that
changes ten times it gets the last version. Who comes back soon gets only what has changed meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

REMEMBERED_DROPS: Final = 10_000
"""Parts that have gone, for those who come back."""


class Batch(NamedTuple):
    """Parts to put, keys to drop, and how many parts the reader has to hear of after these."""

    put: tuple[bytes, ...]
    drop: tuple[str, ...]
    behind: int


class Reader:
    """One who reads. `news` is called when there is something for it."""

    def __init__(self, board: Board, due: Iterator[str], resumed: bool, news: Callable[[], object]) -> None:
        self.resumed = resumed
        self.news = news
        self._board = board
        self._due = dict.fromkeys(due)

    def note(self, key: str) -> None:
        self._due[key] = None

    @property
    def is_behind(self) -> bool:
        return bool(self._due)

    def take(self, most: int) -> Batch:
        """The next parts."""
        keys = list(islice(self._due, most))
        for key in keys:
            del self._due[key]
        found = [(key, self._board.get(key)) for key in keys]
        return Batch(
            tuple(part for _, part in found if part is not None),
            tuple(key for key, part in found if part is None),
            len(self._due),
        )


class Board:
    """Parts by key. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._parts: dict[str, tuple[bytes, int]] = {}
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """The version of the last drop that is not remembered any more."""
        self._readers: dict[Reader, None] = {}
        self._has_news = False

    def put(self, key: str, part: bytes) -> None:
        """Add or replace. A part that is as before changes nothing."""
        known = self._parts.get(key)
        if known is not None and known[0] == part:
            return
        self.version += 1
        self._parts[key] = part, self.version
        self._dropped.pop(key, None)
        self._note(key)

    def drop(self, key: str) -> None:
        if self._parts.pop(key, None) is None:
            return
        self.version += 1
        self._dropped[key] = self.version
        while len(self._dropped) > REMEMBERED_DROPS:
            _, self._forgotten = self._dropped.popitem(last=False)
        self._note(key)

    def get(self, key: str) -> bytes | None:
        known = self._parts.get(key)
        return known[0] if known is not None else None

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._parts if key.startswith(prefix)]

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def readers(self) -> int:
        return len(self._readers)

    def join(self, since: int | None, news: Callable[[], object]) -> Reader:
        """Somebody who knows all versions up to `since`, or nothing."""
        resumed = since is not None and self._forgotten <= since <= self.version
        due = self._since(since) if since is not None and resumed else iter(list(self._parts))
        reader = Reader(self, due, resumed, news)
        self._readers[reader] = None
        return reader

    def _since(self, since: int) -> Iterator[str]:
        yield from [key for key, (_, version) in self._parts.items() if version > since]
        yield from [key for key, version in self._dropped.items() if version > since]

    def leave(self, reader: Reader) -> None:
        self._readers.pop(reader, None)

    def ring(self) -> None:
        """Tell the readers that there is something for them."""
        if self._has_news:
            self._has_news = False
            for reader in self._readers:
                if reader.is_behind:
                    reader.news()

    def _note(self, key: str) -> None:
        self._has_news = True
        for reader in self._readers:
            reader.note(key)
