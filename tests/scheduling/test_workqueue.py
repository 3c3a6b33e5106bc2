"""Namespaces take turns, and so do the claims in each; whoever waits with most gives way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.allocation.workerrequests import CompileRequest
from dra_extender.cel import CelGates
from dra_extender.scheduling.deferred import WorkItem, WorkQueue


def asked(namespace: str, content: str, number: int) -> WorkItem:
    return WorkItem(f"{namespace}{content}{number}", CompileRequest("true", CelGates()), content)


def queue(*waiting: str) -> WorkQueue:
    """With questions such as "ax": of namespace a, for claims of content x; numbered from 1 for each of both."""
    made, numbers = WorkQueue(), dict[str, int]()
    for each in waiting:
        numbers[each] = numbers.get(each, 0) + 1
        made.put(each[0], asked(each[0], each[1], numbers[each]))
    return made


def taken(waiting: WorkQueue) -> list[str]:
    return [str(waiting.take().key) for _ in range(len(waiting))]


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
    assert (found.key if found is not None else None) == yielded
    assert len(made) == len(waiting) - (yielded is not None)


def test_what_claims_have_asked_can_be_given_up_in_all_namespaces() -> None:
    made = queue("ax", "ay", "bx", "bx")
    assert sorted(str(each.key) for each in made.drop("x")) == ["ax1", "bx1", "bx2"]
    assert taken(made) == ["ay1"]


@given(st.lists(st.sampled_from(["ax", "ay", "bx", "by", "take", "drop x", "yield ax", "yield by"])))
def test_no_question_is_lost_and_none_comes_twice(moves: list[str]) -> None:
    made, waiting = WorkQueue(), set[str]()
    for number, move in enumerate(moves):
        if move == "take" and waiting:
            waiting.remove(str(made.take().key))
        elif move == "drop x":
            waiting -= {str(each.key) for each in made.drop("x")}
        elif move.startswith("yield"):
            found = made.evict_for(move[-2], move[-1])
            waiting -= {str(found.key)} if found is not None else set()
        elif move != "take":
            made.put(move[0], asked(move[0], move[1], number))
            waiting.add(f"{move}{number}")
        assert len(made) == len(waiting)
    assert sorted(taken(made)) == sorted(waiting)
