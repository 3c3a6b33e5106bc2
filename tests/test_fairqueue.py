"""The namespace that has used least is next, and contents take turns. The namespace with most items loses one."""

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


@pytest.mark.parametrize("variants", [1, 10, 500])
def test_a_namespace_that_uses_much_waits_behind_one_that_uses_little_however_many_variants_it_has(
    variants: int,
) -> None:
    """Items of a cost 100 units, items of b one: between two items of a there are 100 of b."""
    made, used, order = FairQueue[str](), {"a": 0, "b": 0}, list[str]()
    for number in range(500):
        made.put("a", number % variants, "a")
        made.put("b", 0, "b")
    for _ in range(400):
        order.append(namespace := made.take())
        cost = 100 if namespace == "a" else 1
        made.charge(namespace, cost - 1)
        used[namespace] += cost
        assert used["a"] <= used["b"] + 100
    assert order.count("a") == 4


def test_a_namespace_gains_nothing_for_the_time_without_items_and_owes_nothing_for_it() -> None:
    made = queue(*["ax"] * 10)
    assert [made.take() for _ in range(5)][-1] == "ax5"
    for number in range(5):
        made.put("b", "x", f"bx{number}")
    assert [made.take()[0] for _ in range(6)] == ["b", "a", "b", "a", "b", "a"]


def test_what_an_item_has_cost_counts_although_its_namespace_has_nothing_left() -> None:
    made = queue("ax")
    made.take()
    made.charge("a", 5)
    made.put("a", "x", "ax2")
    for number in range(8):
        made.put("b", "x", f"bx{number}")
    assert [made.take()[0] for _ in range(9)] == [*"bbbbbb", "a", "b", "b"]


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


def test_a_content_can_be_taken_at_once_and_counts_as_one_turn_of_one_namespace() -> None:
    made = queue("ax", "ax", "ay", "bx", "by")
    assert list(made.take_alike()) == ["ax1", "ax2", "bx1"]
    assert taken(made) == ["by1", "ay1"]


@given(
    st.lists(
        st.sampled_from(["ax", "ay", "bx", "by", "take", "take alike", "drop x", "yield ax", "yield by", "charge a"])
    )
)
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
        elif move.startswith("charge"):
            made.charge(move[-1], 3)
        elif not move.startswith("take"):
            made.put(move[0], move[1], f"{move}{number}")
            waiting.add(f"{move}{number}")
        assert len(made) == len(waiting)
    assert sorted(taken(made)) == sorted(waiting)
