"""Counters as budgets: the least that all requests together must consume against what is left.

Promises: a lower bound. Every request is charged the smallest demands among the devices it could take; requests that
accept the same devices share them, and all requests together are charged as one as well. Looked at are each counter
and, summed up over all sets and pools, each counter name. Devices that can be shared count nothing, and can serve every
request once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from app.allocation.proofs.demands import Demand
from app.allocation.state import State
from app.allocation.task import Task


class _Budget:
    """One sum of counters: `numbers` are added up; `steps` are (demand, devices with it), ascending, without zero."""

    __slots__ = ("consuming", "numbers", "steps")

    def __init__(self, numbers: list[int], weights: dict[int, int]) -> None:
        self.numbers = numbers
        masks: dict[int, int] = defaultdict(int)
        self.consuming = 0
        for device, weight in weights.items():
            if weight > 0:
                masks[weight] |= 1 << device
                self.consuming |= 1 << device
        self.steps = sorted(masks.items())

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


class CounterBudgets:
    """All budgets of a task."""

    def __init__(self, task: Task) -> None:
        counters = task.counters
        self._shareable = task.shareable
        self._budgets: list[_Budget] = []
        if counters is None:
            return
        by_name: dict[str, list[int]] = defaultdict(list)
        for number, (_, _, name) in enumerate(counters.names):
            by_name[name].append(number)
        sums = [[number] for number in range(len(counters.names))]
        sums += [numbers for numbers in by_name.values() if len(numbers) > 1]
        for numbers in sums:
            weights: dict[int, int] = {}
            for device, charge in counters.charges.items():
                if not task.shareable >> device & 1:
                    weights[device] = sum(amount for number, amount in charge if number in numbers)
            self._budgets.append(_Budget(numbers, weights))

    def suffice(self, state: State, members: Sequence[Demand]) -> bool:
        """Whether what is left may be enough."""
        merged: dict[int, int] = defaultdict(int)
        for demand in members:
            if not demand.admin:
                shared = demand.mask & self._shareable
                merged[demand.mask ^ shared] += max(0, demand.need - shared.bit_count())
        together = sum(merged.values())
        union = 0
        for mask in merged:
            union |= mask
        for budget in self._budgets:
            needed = sum(budget.least(mask, need) for mask, need in merged.items() if mask & budget.consuming)
            if len(merged) > 1:
                needed = max(needed, budget.least(union, together))
            if needed and needed > sum(max(0, state.left[number]) for number in budget.numbers):
                return False
        return True
