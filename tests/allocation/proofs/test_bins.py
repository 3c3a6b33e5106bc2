"""Packing: sizes of several dimensions into bins. Never a false no; exact within its limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.allocation.proofs.bins import Packing, Row, Size, flat


@given(st.data())
def test_packing_is_exact_within_its_limit(data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, 3))
    size = st.none() | st.tuples(st.integers(0, 4), st.integers(0, 4))
    items: list[Row] = data.draw(st.lists(st.tuples(*[size] * bins), max_size=5))
    room: list[Size] = data.draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=bins, max_size=bins)
    )

    def place(index: int, left: list[Size]) -> bool:
        if index == len(items):
            return True
        for bin, part in enumerate(items[index]):
            if part is not None and all(want <= have for want, have in zip(part, left[bin], strict=True)):
                rest = tuple(have - want for want, have in zip(part, left[bin], strict=True))
                if place(index + 1, [*left[:bin], rest, *left[bin + 1 :]]):
                    return True
        return False

    assert Packing(items, room, 100_000).feasible() == place(0, room)


def test_a_flat_question_has_one_size_per_item_and_no_forbidden_bin_with_room() -> None:
    assert flat([((2,), (2,)), ((3,), None)], [(5,), (2,)]) == [2, 3]
    assert flat([((2,), (2,)), ((3,), None)], [(5,), (3,)]) is None
    assert flat([((2,), (1,))], [(5,), (3,)]) is None
    assert flat([((2, 1),)], [(5, 5)]) is None


# --- work done on shapes that explode without the proofs --------------------------------------------------------------
