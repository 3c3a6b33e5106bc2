"""Deleted objects, remembered for a while, so that what comes late does not revive them.

Promises: the last so many are remembered; an entry is a few numbers in arrays, not an object. Thousands of deleted
claims would otherwise leave thousands of small objects all over the heap that they were in, and none of it could be
given back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

_MOST_VERSION: Final = 2**64 - 1


class Deletions:
    """Versions of deleted objects by UID, of the last `most`. UIDs are told apart by their hashes (64 bits, others in
    each process).
    """

    __slots__ = ("_hashes", "_most", "_order", "_versions")

    def __init__(self, most: int) -> None:
        self._most = most
        self._hashes = array("q")
        """Sorted."""
        self._versions = array("Q")
        """In the order of the hashes."""
        self._order = array("q")
        """The hashes, oldest first."""

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, uid: str) -> bool:
        return self.get(uid) is not None

    def get(self, uid: str) -> int | None:
        """The version that was deleted; None when no deletion is known."""
        found = hash(uid)
        place = bisect_left(self._hashes, found)
        return self._versions[place] if self._is_at(place, found) else None

    def put(self, uid: str, version: int = 0) -> None:
        """The object of this UID was deleted at this version."""
        self.discard(uid)
        if len(self._order) >= self._most:
            self._drop(self._order.pop(0))
        added = hash(uid)
        place = bisect_left(self._hashes, added)
        self._hashes.insert(place, added)
        self._versions.insert(place, min(version, _MOST_VERSION))
        self._order.append(added)

    def discard(self, uid: str) -> None:
        """The object is there again, or was never gone."""
        number = hash(uid)
        if self._drop(number):
            self._order.remove(number)

    def _drop(self, number: int) -> bool:
        place = bisect_left(self._hashes, number)
        if not self._is_at(place, number):
            return False
        del self._hashes[place], self._versions[place]
        return True

    def _is_at(self, place: int, number: int) -> bool:
        return place < len(self._hashes) and self._hashes[place] == number
