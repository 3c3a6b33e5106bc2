"""Counters the other way round: how many devices the counters that are left yield at most.

Promises: an upper bound. Counter sets that some device links are looked at together; they yield no more devices than
the scarcest of their counters suffices for when the devices that need least come first. So fragments of counters that
would be enough in one place count nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from dra_extender.allocation.proofs.budgets import Budget
from dra_extender.allocation.state import State
from dra_extender.allocation.task import Task


class _Cluster(NamedTuple):
    """Devices that have to do with each other, and all counters of the sets they consume from."""

    devices: int
    counters: list[Budget]


class Yields:
    """The counter sets of a task."""

    def __init__(self, task: Task) -> None:
        self._clusters = _clusters(task)
        self._clustered = sum(cluster.devices for cluster in self._clusters)

    def suffice(self, state: State, needs: Mapping[int, int]) -> bool:
        """Whether there may be enough devices for the `demands.exclusive` needs: for all together, and for each with
        those that accept no other devices.
        """
        union = 0
        for mask in needs:
            union |= mask
        for mask in {union, *needs}:
            need = sum(count for part, count in needs.items() if not part & ~mask)
            if need > self._most(state, mask):
                return False
        return True

    def _most(self, state: State, mask: int) -> int:
        """How many devices of the mask can be had together at most."""
        total = (mask & ~self._clustered).bit_count()
        for devices, counters in self._clusters:
            part = mask & devices
            if part:
                total += min(counter.most(part, counter.left(state)) for counter in counters)
        return total


def _clusters(task: Task) -> list[_Cluster]:
    """Sets are linked by devices that consume from several."""
    counters = task.counters
    if counters is None:
        return []
    sets: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, (pool, set_name, _) in enumerate(counters.names):
        sets[pool, set_name].append(number)
    clusters: list[tuple[int, list[int]]] = [(0, numbers) for numbers in sets.values()]
    for device, charge in counters.charges.items():
        touched = {number for number, _ in charge}
        mask = 1 << device
        numbers: list[int] = []
        apart: list[tuple[int, list[int]]] = []
        for cluster in clusters:
            if touched.isdisjoint(cluster[1]):
                apart.append(cluster)
            else:
                mask |= cluster[0]
                numbers += cluster[1]
        clusters = [*apart, (mask, numbers)]
    return [_Cluster(mask, [Budget(task, [number]) for number in numbers]) for mask, numbers in clusters if mask]
