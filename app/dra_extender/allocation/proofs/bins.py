"""Whether items fit into bins: shares into devices, claims into groups of devices.

Promises: False only when it is proven that the items do not fit. An item may have a different size in each bin, or not
be allowed there; sizes have any number of dimensions, each bin its own. Large items are placed first, fullest bins
tried first, equal bins once, failed situations remembered. When the work exceeds the limit the answer is True.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

Size = tuple[int, ...]
Row = tuple[Size | None, ...]
"""The size of an item in each bin; None where it is not allowed."""

MAX_ITEMS: Final = 256

LOOK: Final = 2
"""What looking for a place of an item costs, besides one per bin."""


class Packing:
    """One question. `steps` counts the placements that were tried; `spend` hears of work as it is done, in bins that
    were looked at, and may raise.
    """

    def __init__(
        self, items: Sequence[Row], room: Sequence[Size], limit: int, spend: Callable[[int], None] = lambda bins: None
    ) -> None:
        self.steps = 0
        self._limit = limit
        self._spend = spend
        spend(len(items) * len(room))
        self._room = list(room)
        self._items = sorted(items, key=lambda row: _hardness(row, room))
        columns: dict[Hashable, int] = {}
        self._column = [
            columns.setdefault(tuple(row[bin] for row in self._items), len(columns)) for bin in range(len(room))
        ]
        self._failed: set[Hashable] = set()

    def feasible(self) -> bool:
        """False only when the items provably do not fit."""
        if len(self._items) > MAX_ITEMS:
            return True
        return self._place(0)

    def _place(self, index: int) -> bool:
        if index == len(self._items):
            return True
        room = self._room
        self._spend(LOOK + len(room))
        state = index, tuple(sorted(zip(self._column, room, strict=True)))
        if state in self._failed:
            return False
        row = self._items[index]
        tried: set[tuple[int, Size]] = set()
        for bin in sorted(range(len(room)), key=room.__getitem__):
            size, before = row[bin], room[bin]
            if size is None or any(part > left for part, left in zip(size, before, strict=True)):
                continue
            kind = self._column[bin], before
            if kind in tried:
                continue
            tried.add(kind)
            self.steps += 1
            if self.steps > self._limit:
                return True
            room[bin] = tuple(left - part for part, left in zip(size, before, strict=True))
            found = self._place(index + 1)
            room[bin] = before
            if found:
                return True
        self._failed.add(state)
        return False


def _hardness(row: Row, room: Sequence[Size]) -> tuple[int, float]:
    """Items with few bins come first, then those that fill much of a bin. Room for one says nothing about an amount."""
    fills = [
        max((part / limit for part, limit in zip(size, left, strict=True) if limit > 1), default=0.0)
        for size, left in zip(row, room, strict=True)
        if size is not None
    ]
    return len(fills), -sum(fills) / len(fills) if fills else 0.0


def flat(items: Sequence[Row], room: Sequence[Size]) -> list[int] | None:
    """The sizes, when bins have one dimension and every item has one size and may go into every bin that has room for
    it; else None.
    """
    if any(len(left) != 1 for left in room):
        return None
    sizes: list[int] = []
    for row in items:
        found = {size[0] for size in row if size is not None}
        if len(found) != 1:
            return None
        size = found.pop()
        if any(part is None and left[0] >= size for part, left in zip(row, room, strict=True)):
            return None
        sizes.append(size)
    return sizes
