"""Whether groups of requests can all get devices of their own at the same time (Hall's condition).

Promises: exact for exclusive devices; groups are masks of acceptable devices with the number that is needed. Groups
that accept the same devices are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

MEMBERS_PER_UNIT: Final = 8


def assignable(demands: Iterable[tuple[int, int]], spend: Callable[[int], None] = lambda units: None) -> bool:
    """Whether every (mask, need) can have `need` devices out of its mask, each device used once."""
    merged: dict[int, int] = {}
    for mask, need in demands:
        if need:
            merged[mask] = merged.get(mask, 0) + need
    groups = sorted(merged.items(), key=lambda group: group[0].bit_count())
    if any(need > mask.bit_count() for mask, need in groups):
        return False
    if len(groups) < 2:
        return True
    return _Assignment([mask for mask, _ in groups], spend).satisfy([need for _, need in groups])


class _Assignment:
    """Devices given to groups; improved along alternating paths, as in the theory of bipartite matching."""

    __slots__ = ("_given", "_masks", "_spend", "_used")

    def __init__(self, masks: list[int], spend: Callable[[int], None]) -> None:
        self._masks = masks
        self._spend = spend
        self._given = [0] * len(masks)
        self._used = 0

    def satisfy(self, needs: list[int]) -> bool:
        for group, need in enumerate(needs):
            missing = need - self._give(group, need)
            for _ in range(missing):
                if not self._augment(group):
                    return False
        return True

    def _give(self, group: int, need: int) -> int:
        """Up to `need` free devices, at once."""
        free = self._masks[group] & ~self._used
        taken = min(need, free.bit_count())
        given = _lowest(free, taken)
        self._given[group] |= given
        self._used |= given
        return taken

    def _augment(self, group: int) -> bool:
        """One more device for the group, by letting others move on to other devices."""
        came_from = {group: group}
        reach = self._masks[group]
        queue = [group]
        while True:
            self._spend(1 + len(self._masks) // MEMBERS_PER_UNIT)
            free = reach & ~self._used
            if free:
                last = next(member for member in queue if self._masks[member] & free)
                self._shift(came_from, group, last, _lowest(self._masks[last] & free, 1))
                return True
            found = False
            for other, given in enumerate(self._given):
                if other not in came_from and given & reach:
                    self._spend(1 + len(queue) // MEMBERS_PER_UNIT)
                    came_from[other] = next(member for member in queue if self._masks[member] & given)
                    queue.append(other)
                    reach |= self._masks[other]
                    found = True
            if not found:
                return False

    def _shift(self, came_from: dict[int, int], group: int, last: int, device: int) -> None:
        self._used |= device
        while last != group:
            before = came_from[last]
            passed_on = _lowest(self._given[last] & self._masks[before], 1)
            self._given[last] = self._given[last] ^ passed_on | device
            device, last = passed_on, before
        self._given[group] |= device


def _lowest(mask: int, count: int) -> int:
    """The `count` lowest bits of the mask."""
    if count == mask.bit_count():
        return mask
    found = 0
    for _ in range(count):
        low = mask & -mask
        found |= low
        mask ^= low
    return found
