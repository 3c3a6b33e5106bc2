"""The pods that wait for kube-scheduler, in the order in which it takes them.

Promises: those of higher priority come first, then those that have waited longer; a pod that was refused waits anew.
Its place costs a search among all and no look at the others, and so does finding the first ones.

Since when a pod waits is the time at which kube-scheduler came to know it, which is that of its creation. One that has
been started since has found all pods at once, and takes them in no order that anybody could tell: `missed` says how far
the order is from what schedulers ask about.

Rules: Kubernetes 1.36, pkg/scheduler/framework/plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

FORGETTING: Final = 0.8
"""What counts of the earlier questions when one more is counted."""
FAR: Final = 1_000

_Place = tuple[int, float, int, str]
"""(priority, negative; since when, seconds; serial number; UID)"""


class Queue:
    """By UID of the pod."""

    def __init__(self) -> None:
        self.missed = 0.0
        """How many pods came before those that were asked about lately."""
        self._order: list[_Place] = []
        self._places: dict[str, _Place] = {}
        self._serial = 0

    def put(self, uid: str, priority: int, since: float) -> None:
        """The pod waits since then. One that waits already keeps its place, as long as it has the same priority."""
        known = self._places.get(uid)
        if known is not None and known[0] == -priority:
            return
        self.drop(uid)
        self._insert(uid, priority, since)

    def asked(self, uid: str) -> None:
        """A scheduler asks about the pod: it should have been the first."""
        known = self._places.get(uid)
        if known is not None:
            rank = min(bisect_left(self._order, known), FAR)
            self.missed = FORGETTING * self.missed + (1 - FORGETTING) * rank

    def again(self, uid: str, since: float) -> None:
        """The pod was refused: it comes after all that wait longer."""
        known = self._places.get(uid)
        if known is not None:
            self.drop(uid)
            self._insert(uid, -known[0], since)

    def drop(self, uid: str) -> None:
        """The pod does not wait any more."""
        known = self._places.pop(uid, None)
        if known is not None:
            del self._order[bisect_left(self._order, known)]

    def first(self, count: int) -> Sequence[str]:
        """The UIDs of so many pods that come next."""
        return [uid for *_, uid in self._order[:count]]

    def since(self, uid: str) -> float:
        """Since when the pod waits. Raises KeyError when it does not."""
        return self._places[uid][1]

    def _insert(self, uid: str, priority: int, since: float) -> None:
        self._serial += 1
        place = (-priority, since, self._serial, uid)
        self._places[uid] = place
        insort(self._order, place)

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def __len__(self) -> int:
        return len(self._order)
