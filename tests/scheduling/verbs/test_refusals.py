"""Remembered refusals."""

from __future__ import annotations

import pytest

from dra_extender.scheduling.verbs.refusals import Refusals

KEY = (("uid-c", "7"),)
MIXED = {"n1": "too small", "n2": "taken"}


@pytest.mark.parametrize("refused", [MIXED, {"n1": "taken", "n2": "taken"}])
def test_the_same_question_has_the_same_answer(refused: dict[str, str]) -> None:
    refusals = Refusals()
    refusals.remember("p", KEY, 3, refused)
    assert refusals.recall("p", KEY, 3, ("n1", "n2")) == refused
    assert refusals.recall("p", KEY, 3, ("n2",)) == {"n2": refused["n2"]}


def test_another_question_has_none() -> None:
    refusals = Refusals()
    refusals.remember("p", KEY, 3, MIXED)
    assert refusals.recall("q", KEY, 3, ("n1",)) is None
    assert refusals.recall("p", (("uid-c", "8"),), 3, ("n1",)) is None
    assert refusals.recall("p", KEY, 4, ("n1",)) is None
    assert refusals.recall("p", KEY, 3, ("n1", "n3")) is None
    refusals.forget("p")
    assert refusals.recall("p", KEY, 3, ("n1",)) is None


def test_pods_refused_for_one_reason_share_their_list_of_nodes() -> None:
    refusals = Refusals()
    nodes = [f"n{index}" for index in range(1000)]
    for pod in range(3000):
        refusals.remember(f"p{pod}", KEY, 1, dict.fromkeys(nodes, "taken"))
    assert refusals.recall("p0", KEY, 1, nodes[:1]) == {"n0": "taken"}
    assert len(refusals) == 3000


def test_memory_is_bounded_by_the_nodes_it_names() -> None:
    refusals = Refusals(most_nodes=100)
    for pod in range(20):
        refusals.remember(f"p{pod}", KEY, 1, {f"n{index}": str(index % 2) for index in range(30)})
    assert len(refusals) == 3
    refusals.remember("huge", KEY, 1, {f"n{index}": str(index % 2) for index in range(200)})
    assert refusals.recall("huge", KEY, 1, ("n1",)) is None


@pytest.mark.parametrize("varied", [True, False], ids=["refused", "resolvable"])
def test_different_lists_of_nodes_count_by_their_names(varied: bool) -> None:
    refusals = Refusals(most_nodes=100)
    for pod in range(20):
        part = [f"n{pod}-{index}" for index in range(30)]
        names = part if varied else ["n"]
        refusals.remember(f"p{pod}", KEY, 1, dict.fromkeys(names, "taken"), frozenset(() if varied else part))
    kept = [pod for pod in range(20) if refusals.recall(f"p{pod}", KEY, 1, ()) is not None]
    assert kept == [17, 18, 19]
    assert len(refusals.resolvable("p19")) == (0 if varied else 30)
    assert refusals.resolvable("p0") == frozenset()
