"""Fragmentation Gradient Descent as it was published: the yardstick.

Rules: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and the published simulator: memory does not count,
pods without GPUs do, the distribution is known from the start, scores are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.placement.freestates import NodeFreeState
from dra_extender.placement.podshape import PodShape
from dra_extender.placement.policies import Cost, Fragmentation, plain


class FGD(Fragmentation):
    """`frequencies`: of typical pods with GPUs, of all typical pods."""

    name = "FGD"
    basis = "less the rounded gain in fragments"

    def __init__(self, frequencies: Mapping[PodShape, float]) -> None:
        super().__init__(fed_part=0.0)
        self.weigh(plain((msgspec.structs.replace(shape, memory=0), part) for shape, part in frequencies.items()))

    def cost(self, before: NodeFreeState, after: NodeFreeState, budget: WorkBudget) -> Cost:
        return -float(int(100 / (1 + exp(self._fragments(after, budget) - self._fragments(before, budget))))), 0.0

    def _fragments(self, state: NodeFreeState, budget: WorkBudget) -> float:
        """GPUs that are free and of no use, by the distribution of pods."""
        return state.devices.free - self.remaining_value(state, budget)

    def terms(self, before: NodeFreeState, after: NodeFreeState, budget: WorkBudget) -> Iterator[str]:
        first, then = self._fragments(before, budget), self._fragments(after, budget)
        yield f"fragments {first:.2f} before and {then:.2f} afterwards"
