"""Whether sizes fit into bins of one dimension when little room may be lost: bins are filled one after the other.

Promises: False only when it is proven. A bin too small for the largest size is filled first, else the largest size is
put into each different bin in turn; either way with every set of sizes that fills the bin so far that nothing left over
would still fit and not more room is lost than there is to lose. Situations that failed are remembered, for later
questions too, as they are told by sizes and rooms alone.
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


LOOKS: Final = 64
"""How many sizes may be looked at for one set that is tried."""
PORTION: Final = 32
"""So many looks are counted together."""
SIZES: Final = 4
"""Computing the sums of so many sizes costs as much as a look."""


class _TooLong(Exception):
    """The answer is not to be had within the limit."""


class Filling:
    """Answers questions about sizes and rooms. `steps` counts the sets that were tried over all questions, `looks` the
    sizes that were looked at for them; `spend` hears of looks, and may raise.
    """

    def __init__(self, spend: Callable[[int], None] = lambda looks: None) -> None:
        self.steps = 0
        self.looks = 0
        self.gave_up = False
        """The latest question was not answered within its limit."""
        self._spend = spend
        self._most_steps = 0
        self._most_looks = 0
        self._failed: set[tuple[Sizes, Sizes]] = set()

    @property
    def work(self) -> int:
        """In steps: where a step takes more than its looks, they count."""
        return max(self.steps, self.looks // LOOKS)

    def feasible(self, sizes: Sequence[int], rooms: Sequence[int], limit: int) -> bool:
        """Whether all sizes fit; True as well when `limit` steps, or LOOKS for each, did not suffice to tell. Raises
        what `spend` does.
        """
        self.gave_up = False
        ordered = tuple(sorted(sizes, reverse=True))
        self._spend(len(sizes) * (1 + len(rooms) // SIZES))
        if _fits_greedily(ordered, rooms):
            return True
        self._most_steps, self._most_looks = self.steps + limit, self.looks + LOOKS * limit
        try:
            return self._fill(ordered, tuple(sorted(rooms)))
        except _TooLong:
            self.gave_up = True
            return True

    def _look(self) -> None:
        """One more size is looked at. Raises _TooLong, and what `spend` does."""
        self.looks += 1
        if not self.looks % PORTION:
            self._spend(PORTION)
            if self.looks > self._most_looks:
                raise _TooLong

    def _fill(self, sizes: Sizes, rooms: Sizes) -> bool:
        if not sizes:
            return True
        slack = sum(rooms) - sum(sizes)
        if slack < 0 or sizes[0] > rooms[-1]:
            return False
        if (sizes, rooms) in self._failed:
            return False
        self._spend(1 + (len(sizes) + len(rooms)) // SIZES)
        reachable = Reachable(sizes)
        if sum(room - reachable.most(room) for room in rooms) <= slack:
            for left, rest in self._branches(sizes, rooms, slack, reachable):
                self.steps += 1
                if self.steps > self._most_steps:
                    raise _TooLong
                if self._fill(left, rest):
                    return True
        self._failed.add((sizes, rooms))
        return False

    def _branches(self, sizes: Sizes, rooms: Sizes, slack: int, reachable: Reachable) -> Iterator[tuple[Sizes, Sizes]]:
        """(sizes left, rooms left) after every sensible way to fill one bin."""
        if rooms[0] < sizes[0]:
            for left in self._completions(sizes, 0, rooms[0], slack, reachable):
                yield left, rooms[1:]
            return
        previous = -1
        for index, room in enumerate(rooms):
            if room != previous:
                previous = room
                for left in self._completions(sizes, 1, room - sizes[0], slack, reachable):
                    yield left, rooms[:index] + rooms[index + 1 :]

    def _completions(self, sizes: Sizes, first: int, room: int, slack: int, reachable: Reachable) -> Iterator[Sizes]:
        """What is left of the sizes when some of them, from the first on, fill the room; fullest sets come first."""

        def extend(index: int, free: int, kept: Sizes) -> Iterator[Sizes]:
            self._look()
            # `kept` are the sizes that were passed over, all of them before `index`
            while index < len(sizes) and sizes[index] > free:
                kept = (*kept, sizes[index])
                index += 1
            if index == len(sizes):
                if free <= slack and (not kept or kept[-1] > free):
                    yield kept
                return
            if not reachable.between(index, max(0, free - slack), free):
                return
            size = sizes[index]
            yield from extend(index + 1, free - size, kept)
            same = index
            while same < len(sizes) and sizes[same] == size:
                same += 1
            yield from extend(same, free, kept + sizes[index:same])

        return extend(first, room, ())


class Reachable:
    """The sums that some of the sizes from an index on can add up to."""

    __slots__ = ("_sums", "_totals", "_unit")

    def __init__(self, sizes: Sizes) -> None:
        self._totals = [*accumulate(reversed(sizes), initial=0)][::-1]
        self._unit = gcd(*sizes) or 1
        self._sums: list[int] = []
        if self._totals[0] // self._unit <= MAX_SUM:
            sums = [1]
            for size in reversed(sizes):
                sums.append(sums[-1] | sums[-1] << size // self._unit)
            self._sums = sums[::-1]

    def between(self, index: int, low: int, high: int) -> bool:
        """Whether a sum between the limits may be possible."""
        if not self._sums:
            return self._totals[index] >= low
        first = -(-low // self._unit)
        count = high // self._unit - first + 1
        return count > 0 and bool(self._sums[index] >> first & ((1 << count) - 1))

    def most(self, room: int) -> int:
        """The largest sum of all sizes that fits, or the room when sums are too many to tell."""
        if not self._sums:
            return min(room, self._totals[0])
        return ((self._sums[0] & ((2 << room // self._unit) - 1)).bit_length() - 1) * self._unit


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
