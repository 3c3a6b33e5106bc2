"""Filling: amounts into rooms. Never a false no; exact where it promises it."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.allocation.proofs.packing import Filling, Reachable
from tests.support.counting import garbage


def packs(sizes: list[int], rooms: list[int]) -> bool:
    @cache
    def place(index: int, left: tuple[int, ...]) -> bool:
        if index == len(sizes):
            return True
        return any(
            room >= sizes[index] and place(index + 1, tuple(sorted((*left[:i], room - sizes[index], *left[i + 1 :]))))
            for i, room in enumerate(left)
        )

    return place(0, tuple(sorted(rooms)))


@given(st.lists(st.integers(1, 9), max_size=8), st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_filling_is_exact(sizes: list[int], rooms: list[int]) -> None:
    assert Filling().feasible(sizes, rooms, 100_000) == packs(sizes, rooms)


def test_filling_remembers_failures_and_says_yes_when_it_runs_out_of_steps() -> None:
    sizes, rooms = [8, 7, 7, 7, 4, 4, 3, 3], [16, 16, 12]
    filling = Filling()
    assert not packs(sizes, rooms)
    assert not filling.feasible(sizes, rooms, 1000)
    steps = filling.steps
    assert not filling.feasible(sizes, rooms, 1000)
    assert filling.steps == steps
    assert Filling().feasible(sizes, rooms, 0)


def test_filling_leaves_no_garbage_for_the_collector() -> None:
    """A search fills rooms a thousand times per millisecond; collecting what it leaves would stop the event loop."""
    with garbage() as left:
        assert not Filling().feasible([8, 7, 7, 7, 4, 4, 3, 3], [16, 16, 12], 1000)
        assert left() == 0


def test_thousands_of_rooms_that_hold_nothing_cost_no_depth() -> None:
    sizes, rooms = [3] * 4 + [2] * 3, [0] * 6_000 + [5, 5, 4, 4]
    assert Filling().feasible(sizes, rooms, 1000) == packs(sizes, rooms[-4:])


def test_filling_copes_with_amounts_of_any_magnitude() -> None:
    huge = 10**30 + 7
    assert not Filling().feasible([huge, huge, huge - 1], [2 * huge - 2, huge + 1], 1000)
    assert Filling().feasible([huge, huge, huge - 1], [2 * huge - 1, huge], 1000)


def test_a_room_beyond_all_sizes_together_costs_no_more_than_a_small_one() -> None:
    for sizes in ((1,), (2 * 10**18, 10**18)):
        assert Reachable(sizes).most(10**30) == sum(sizes)
    assert not Filling().feasible([5 * 10**24, 5 * 10**24, 1, 1], [4 * 10**24, 6 * 10**24, 10**24], 1000)
