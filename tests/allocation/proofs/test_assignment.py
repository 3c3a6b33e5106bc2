"""Matching: as many devices of the right kind for all who want some. Never a false no."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.allocation.proofs.demands import assignable


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 4)), max_size=6))
def test_assignable_is_halls_condition(demands: list[tuple[int, int]]) -> None:
    def enough(chosen: tuple[tuple[int, int], ...]) -> bool:
        union = 0
        for mask, _ in chosen:
            union |= mask
        return sum(need for _, need in chosen) <= union.bit_count()

    expected = all(enough(chosen) for size in range(len(demands) + 1) for chosen in combinations(demands, size))
    assert assignable(demands) == expected
