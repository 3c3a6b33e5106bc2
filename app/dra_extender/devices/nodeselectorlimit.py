"""Pools that are invalid because each node would have to evaluate too many requirements of node selectors.

Promises: the pools of a driver whose slices are not for one node have at most `REQUIREMENTS_OF_NODE` requirements
together; those with most are refused first. Drivers do not count for each other. A change of a pool costs the same with
any number of pools, unless the driver has too many requirements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from itertools import accumulate

from dra_extender.devices.usage import PoolID
from dra_extender.limits import REQUIREMENTS_OF_NODE


class NodeSelectorLimit:
    """`refused`: the pools with too many requirements."""

    def __init__(self) -> None:
        self.refused: frozenset[PoolID] = frozenset()
        self.sizes: dict[PoolID, int] = {}
        """The requirements of each pool that has some."""
        self._of_driver: Counter[str] = Counter()

    def change(self, pool: PoolID, size: int) -> Set[PoolID]:
        """The pool has this many requirements now. Returns the pools that are refused because of it, or no longer."""
        driver, known, before = pool[0], self.sizes.pop(pool, 0), self.refused
        if size:
            self.sizes[pool] = size
        if size == known:
            return frozenset()
        self._of_driver[driver] += size - known
        self.refused = frozenset(id for id in before if id[0] != driver)
        if self._of_driver[driver] > REQUIREMENTS_OF_NODE:
            ordered = sorted((size, id) for id, size in self.sizes.items() if id[0] == driver)
            totals = accumulate(size for size, _ in ordered)
            self.refused |= {id for total, (_, id) in zip(totals, ordered, strict=True) if total > REQUIREMENTS_OF_NODE}
        return before ^ self.refused
