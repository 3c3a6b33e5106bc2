"""Counters as budgets: the least that all requests together must consume against what is left.

Promises: a lower bound. Every request is charged the smallest demands among the devices that it could take. Requests
that accept the same devices share these demands. The bound is compared for each counter, and for each counter name
summed over all sets and pools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask

PARTS_PER_UNIT: Final = 4


class CounterSum:
    """A sum of counters: `numbers` are added up; `steps` are (demand, devices with it), ascending, without zero."""

    __slots__ = ("consuming", "numbers", "steps")

    def __init__(self, task: AllocationTask, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.consuming = 0
        masks: dict[int, int] = defaultdict(int)
        if task.counters is not None:
            weights: dict[int, int] = defaultdict(int)
            for number in numbers:
                for device, amount in task.counters.consumers[number]:
                    weights[device] += amount
            for device, weight in weights.items():
                if weight > 0 and not task.shareable >> device & 1:
                    masks[weight] |= 1 << device
                    self.consuming |= 1 << device
        self.steps = sorted(masks.items())

    def left(self, state: SearchState) -> int:
        """How much is left."""
        return sum(max(0, state.left[number]) for number in self.numbers)

    def least(self, mask: int, need: int) -> int:
        """What `need` devices of the mask consume at least."""
        need -= (mask & ~self.consuming).bit_count()
        total = 0
        for weight, devices in self.steps:
            if need <= 0:
                break
            taken = min(need, (mask & devices).bit_count())
            total += taken * weight
            need -= taken
        return total


Shortage = tuple[Sequence[int], int, int]
"""(counters, what all requests need of them together at least, what is left of them together)"""


class CounterBudgets:
    """All budgets of a task."""

    def __init__(self, task: AllocationTask) -> None:
        names = task.counters.names if task.counters is not None else []
        task.charge(2 * task.counters.size // PARTS_PER_UNIT if task.counters is not None else 0)
        by_name: dict[str, list[int]] = defaultdict(list)
        for number, (_, _, name) in enumerate(names):
            by_name[name].append(number)
        sums = [[number] for number in range(len(names))]
        sums += [numbers for numbers in by_name.values() if len(numbers) > 1]
        self._charge = task.charge
        self._budgets = [CounterSum(task, numbers) for numbers in sums]

    def shortage(self, state: SearchState, needs: Mapping[int, int]) -> Shortage | None:
        """The first counters of which too little is left for the `demands.exclusive` needs."""
        for budget in self._budgets:
            self._charge(1 + (len(needs) * (2 + len(budget.steps)) + len(budget.numbers)) // PARTS_PER_UNIT)
            needed = sum(budget.least(mask, need) for mask, need in needs.items() if mask & budget.consuming)
            if needed and needed > (left := budget.left(state)):
                return budget.numbers, needed, left
        return None
