"""Whether items fit into bins: shares into devices, partitions into cards, claims into groups of devices.

Promises: False only when it is proven that the items do not fit. An item may have a different size in each bin, or not
be allowed there; sizes have any number of dimensions, each bin its own. Large items are placed first, fullest bins
tried first, equal bins once, failed situations remembered. When the work exceeds the limit the answer is True.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

Size = tuple[int, ...]
Row = tuple[Size | None, ...]
"""The size of an item in each bin; None where it is not allowed."""

MAX_ITEMS: Final = 256
_MAX_SUM: Final = 1 << 14
"""Largest scaled room for which reachable sums are computed."""


class Packing:
    """One question. `steps` counts the placements that were tried; `solution` is a bin per item once one was found."""

    def __init__(self, items: Sequence[Row], room: Sequence[Size], limit: int) -> None:
        self.steps = 0
        self._limit = limit
        self._room = list(room)
        self._order = sorted(range(len(items)), key=lambda item: _hardness(items[item], room))
        self._items = [items[item] for item in self._order]
        columns: dict[Hashable, int] = {}
        self._column = [
            columns.setdefault(tuple(row[bin] for row in self._items), len(columns)) for bin in range(len(room))
        ]
        self._failed: set[Hashable] = set()
        self._totals = _flat_totals(self._items, room)
        self._sums = _reachable(self._items, room) if self._totals is not None else None
        self.solution: list[int] = [0] * len(items)

    def feasible(self) -> bool:
        """False only when the items provably do not fit."""
        if len(self._items) > MAX_ITEMS:
            return True
        return self._place(0)

    def _place(self, index: int) -> bool:
        if index == len(self._items):
            return True
        if self._wasteful(index):
            return False
        room = self._room
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
            self.solution[self._order[index]] = bin
            found = self._place(index + 1)
            room[bin] = before
            if found:
                return True
        self._failed.add(state)
        return False

    def _wasteful(self, index: int) -> bool:
        """One dimension, equal bins: the parts of bins that no sum of the remaining items can fill are lost."""
        if self._totals is None:
            return False
        slack = sum(left[0] for left in self._room) - self._totals[index]
        if slack < 0:
            return True
        if self._sums is None:
            return False
        scale, sums = self._sums
        reachable = sums[index]
        for left in self._room:
            whole = left[0] // scale
            fill = (reachable & ((2 << whole) - 1)).bit_length() - 1
            slack -= left[0] - fill * scale
            if slack < 0:
                return True
        return False


def _hardness(row: Row, room: Sequence[Size]) -> tuple[float, int]:
    """Items that fill much of a bin come first, then those with few bins."""
    fill = 0.0
    bins = 0
    for size, left in zip(row, room, strict=True):
        if size is not None:
            bins += 1
            fill = max(
                fill, max((part / limit for part, limit in zip(size, left, strict=True) if limit > 0), default=0)
            )
    return -fill, bins


def _flat_totals(items: Sequence[Row], room: Sequence[Size]) -> list[int] | None:
    """What the items from each on need together; None unless there is one dimension and an item's size is the same in
    every bin.
    """
    if not room or any(len(left) != 1 for left in room):
        return None
    sizes: list[int] = []
    for row in items:
        found = {size[0] for size in row if size is not None}
        if len(found) != 1:
            return None
        sizes.append(found.pop())
    totals = [0]
    for size in reversed(sizes):
        totals.append(totals[-1] + size)
    return totals[::-1]


def _reachable(items: Sequence[Row], room: Sequence[Size]) -> tuple[int, list[int]] | None:
    """(unit, for each index the bit set of sums of the items from there on); None when the numbers are too big."""
    sizes = [next(size[0] for size in row if size is not None) for row in items]
    unit = _divisor(sizes)
    largest = max(left[0] for left in room) // unit
    if largest > _MAX_SUM:
        return None
    mask = (2 << max(largest, 0)) - 1
    sums = [1]
    for size in reversed(sizes):
        sums.append((sums[-1] | sums[-1] << size // unit) & mask)
    return unit, sums[::-1]


def _divisor(sizes: Sequence[int]) -> int:
    from math import gcd

    return gcd(*sizes) or 1
