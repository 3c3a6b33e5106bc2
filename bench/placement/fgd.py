"""Fragmentation Gradient Descent as it was published: the yardstick.

Rules: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and the published simulator: memory does not count,
pods without GPUs do, the distribution is known from the start, scores are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp
from typing import Final

import msgspec

from dra_extender.placement.podshape import PodShape
from dra_extender.placement.policies import Cost, Worths
from dra_extender.placement.state import State
from dra_extender.placement.workload import plain


class FGD:
    """`frequencies`: of typical pods with GPUs, of all typical pods."""

    name: Final = "FGD"
    basis: Final = "less the rounded gain in fragments"
    version: Final = 0

    def __init__(self, frequencies: Mapping[PodShape, float]) -> None:
        self._worths = Worths(fed_part=0.0)
        self._worths.weigh(
            plain((msgspec.structs.replace(shape, memory=0), part) for shape, part in frequencies.items())
        )

    @property
    def work(self) -> int:
        return self._worths.work

    def cost(self, before: State, after: State) -> Cost:
        return -float(int(100 / (1 + exp(self._fragments(after) - self._fragments(before))))), 0.0

    def _fragments(self, state: State) -> float:
        """GPUs that are free and of no use, by the distribution of pods."""
        return state.stock.free - self._worths.of(state)

    def terms(self, before: State, after: State) -> Iterator[str]:
        yield f"fragments {self._fragments(before):.2f} before and {self._fragments(after):.2f} afterwards"
