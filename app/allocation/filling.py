"""Whether sizes fit into bins of one dimension when little room may be lost: bins are filled one after the other.

Promises: False only when it is proven. The largest size left is put into each different bin in turn, together with
every set of other sizes that fills the bin so far that nothing left over would still fit and not more room is lost than
there is to lose. Situations that failed are remembered, for later questions too, as they are told by sizes and rooms
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import gcd
from typing import Final

Sizes = tuple[int, ...]
"""Descending."""

MAX_SUM: Final = 1 << 14
"""Up to this sum, in units of their greatest common divisor, all sums of sizes are computed."""


class Filling:
    """Answers questions about sizes and rooms. `steps` counts the sets that were tried over all questions."""

    def __init__(self) -> None:
        self.steps = 0
        self._failed: set[tuple[Sizes, Sizes]] = set()

    def feasible(self, sizes: Sequence[int], rooms: Sequence[int], limit: int) -> bool:
        """Whether all sizes fit; True as well when `limit` steps were not enough to find out."""
        ordered = tuple(sorted(sizes, reverse=True))
        if _fits_greedily(ordered, rooms):
            return True
        return self._fill(ordered, tuple(sorted(rooms)), self.steps + limit)

    def _fill(self, sizes: Sizes, rooms: Sizes, limit: int) -> bool:
        if not sizes:
            return True
        slack = sum(rooms) - sum(sizes)
        if slack < 0 or sizes[0] > rooms[-1]:
            return False
        lost = sum(room for room in rooms if room < sizes[-1])
        if lost > slack:
            return False
        if (sizes, rooms) in self._failed:
            return False
        previous = -1
        for index, room in enumerate(rooms):
            if room < sizes[0] or room == previous:
                continue
            previous = room
            rest = rooms[:index] + rooms[index + 1 :]
            for left in _completions(sizes, room, slack):
                self.steps += 1
                if self.steps > limit or self._fill(left, rest, limit):
                    return True
        self._failed.add((sizes, rooms))
        return False


def _fits_greedily(sizes: Sizes, rooms: Sequence[int]) -> bool:
    """Largest first, each into the fullest bin that takes it."""
    left = sorted(rooms)
    for size in sizes:
        place = next((index for index, room in enumerate(left) if room >= size), None)
        if place is None:
            return False
        left[place] -= size
        left.sort()
    return True


def _completions(sizes: Sizes, room: int, slack: int) -> Iterator[Sizes]:
    """What is left of the sizes when the first of them and others fill the room; fullest sets of large sizes first."""
    reachable = _reachable(sizes)

    def extend(index: int, free: int, kept: Sizes) -> Iterator[Sizes]:
        # `kept` are the sizes that were passed over, all of them before `index`
        while index < len(sizes) and sizes[index] > free:
            kept = (*kept, sizes[index])
            index += 1
        if index == len(sizes):
            if free <= slack and (not kept or kept[-1] > free):
                yield kept
            return
        if not reachable(index, max(0, free - slack), free):
            return
        size = sizes[index]
        yield from extend(index + 1, free - size, kept)
        same = index
        while same < len(sizes) and sizes[same] == size:
            same += 1
        yield from extend(same, free, kept + sizes[index:same])

    return extend(1, room - sizes[0], ())


def _reachable(sizes: Sizes) -> Callable[[int, int, int], bool]:
    """Whether some of the sizes from an index on may add up to an amount between two limits."""
    totals = [*accumulate(reversed(sizes), initial=0)][::-1]
    unit = gcd(*sizes) or 1
    if totals[0] // unit > MAX_SUM:
        return lambda index, low, high: totals[index] >= low
    sums = [1]
    for size in reversed(sizes):
        sums.append(sums[-1] | sums[-1] << size // unit)
    sums.reverse()

    def between(index: int, low: int, high: int) -> bool:
        first = -(-low // unit)
        count = high // unit - first + 1
        return count > 0 and bool(sums[index] >> first & ((1 << count) - 1))

    return between
