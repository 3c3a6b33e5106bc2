"""The turns of namespaces at worker processes in a chaotic world, counted independently of `FairQueue`.

- S14 while an item of one namespace waits, another namespace uses no more of the workers than the waiting one has used
  since the queue was last empty, besides the items that the workers had begun before: `take`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from dra_extender.fairqueue import FairQueue
from dra_extender.scheduling.deferred import MILLISECONDS, WorkItem

MOST_UNITS: Final = 2 * MILLISECONDS + 1
"""What one item uses at most: the time limit of `VirtualWorkers`, and its turn."""


class CountedQueue(FairQueue[WorkItem]):
    """The queue of a service, which counts what each namespace uses. `capacity`: of the workers."""

    def __init__(self, capacity: int, violations: list[str], counts: Counter[str]) -> None:
        super().__init__()
        self._capacity = capacity
        self._violations = violations
        self._counts = counts
        self._units: Counter[str] = Counter()
        """By namespace: units used since the queue was last empty."""
        self._before: dict[str, Counter[str]] = {}
        """By waiting namespace: the units of all when it began to wait for its next item."""

    def put(self, namespace: str, content: Hashable, item: WorkItem) -> None:
        super().put(namespace, content, item)
        self._before.setdefault(namespace, self._units.copy())

    def charge(self, namespace: str, units: float) -> None:
        super().charge(namespace, units)
        self._units[namespace] += round(units)

    def take(self) -> WorkItem:
        units = self._units.copy()
        item = super().take()
        taken = item.namespace
        if taken in self._before:
            self._before[taken] = self._units.copy()
        for waiting, before in self._before.items():
            used = units[taken] - before[taken]
            self._counts["turn while another namespace waits"] += waiting != taken
            if used > units[waiting] + self._capacity * MOST_UNITS:
                self._violations.append(f"{taken} used {used} units of the workers while {waiting} waited")
        return item

    def _grow(self, namespace: str, by: int) -> None:
        super()._grow(namespace, by)
        if namespace not in self._sizes:
            self._before.pop(namespace, None)
        if not self._size:
            self._units.clear()
