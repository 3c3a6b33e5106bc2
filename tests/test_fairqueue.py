"""Namespaces take turns, and so do the contents in each. The namespace with most items loses one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.fairqueue import FairQueue


def queue(*waiting: str) -> FairQueue[str]:
    """With items such as "ax": of namespace a and content x; numbered from 1 for each of both."""
    made, numbers = FairQueue[str](), dict[str, int]()
    for each in waiting:
        numbers[each] = numbers.get(each, 0) + 1
        made.put(each[0], each[1], f"{each}{numbers[each]}")
    return made


def taken(waiting: FairQueue[str]) -> list[str]:
    return [waiting.take() for _ in range(len(waiting))]


@pytest.mark.parametrize(
    ("waiting", "order"),
    [
        (["ax", "ax", "ax"], ["ax1", "ax2", "ax3"]),
        (["ax", "ax", "ax", "bx"], ["ax1", "bx1", "ax2", "ax3"]),
        (["ax", "ax", "ay", "ay"], ["ax1", "ay1", "ax2", "ay2"]),
        (["ax", "ax", "ay", "bz", "bz"], ["ax1", "bz1", "ay1", "bz2", "ax2"]),
    ],
    ids=["one by one", "a namespace that asks once is second", "so is a claim", "claims share the turns of theirs"],
)
def test_who_asks_more_does_not_come_more_often(waiting: list[str], order: list[str]) -> None:
    assert taken(queue(*waiting)) == order


@pytest.mark.parametrize(
    ("waiting", "newcomer", "yielded"),
    [
        ([], "ax", None),
        (["ax", "ax"], "ax", None),
        (["ax", "ax"], "bx", "ax2"),
        (["ax", "ax"], "ay", "ax2"),
        (["ax", "ay", "ay", "bz"], "bz", "ay2"),
        (["ax", "bx"], "bx", None),
        (["ax", "ax", "bx", "bx", "by"], "bz", "bx2"),
    ],
    ids=[
        "there is nobody",
        "nobody gives way to himself",
        "the last question of the other namespace",
        "the last question of other claims in the namespace",
        "the claims that wait with most, in the namespace that does",
        "nobody with no more than the newcomer",
        "in the newcomer's own namespace when that waits with most",
    ],
)
def test_who_waits_with_most_gives_way(waiting: list[str], newcomer: str, yielded: str | None) -> None:
    made = queue(*waiting)
    found = made.evict_for(newcomer[0], newcomer[1])
    assert found == yielded
    assert len(made) == len(waiting) - (yielded is not None)


def test_a_content_can_be_dropped_in_all_namespaces() -> None:
    made = queue("ax", "ay", "bx", "bx")
    assert sorted(made.drop("x")) == ["ax1", "bx1", "bx2"]
    assert taken(made) == ["ay1"]


def test_a_content_of_a_namespace_can_be_taken_at_once_and_counts_as_one_turn() -> None:
    made = queue("ax", "ax", "ay", "bx")
    assert list(made.take_alike()) == ["ax1", "ax2"]
    assert taken(made) == ["bx1", "ay1"]


@given(st.lists(st.sampled_from(["ax", "ay", "bx", "by", "take", "take alike", "drop x", "yield ax", "yield by"])))
def test_no_item_is_lost_and_none_comes_twice(moves: list[str]) -> None:
    made, waiting = FairQueue[str](), set[str]()
    for number, move in enumerate(moves):
        if move == "take" and waiting:
            waiting.remove(made.take())
        elif move == "take alike" and waiting:
            waiting -= set(made.take_alike())
        elif move == "drop x":
            waiting -= set(made.drop("x"))
        elif move.startswith("yield"):
            waiting -= {made.evict_for(move[-2], move[-1])} - {None}
        elif not move.startswith("take"):
            made.put(move[0], move[1], f"{move}{number}")
            waiting.add(f"{move}{number}")
        assert len(made) == len(waiting)
    assert sorted(taken(made)) == sorted(waiting)
