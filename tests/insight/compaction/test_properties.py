"""Whatever the cluster: advice that is followed comes true, move by move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.insight.compaction import EvictionRules
from tests.support.diagnosis.compacting import Compacting, Json, PodTold, budget
from tests.support.scheduling.preempting import by_namespace

PARTS = (300, 500, 700, 1000)


@st.composite
def clusters(draw: st.DrawFn) -> Compacting:
    """A few nodes with a few GPUs, in use in parts that fit."""
    nodes = {f"n{index}": draw(st.integers(1, 3)) for index in range(draw(st.integers(2, 4)))}
    pods: dict[str, PodTold] = {}
    for node, count in nodes.items():
        for gpu in range(count):
            left = 1000
            while (part := draw(st.sampled_from((0, *PARTS)))) and part <= left:
                left -= part
                fields: Json = {
                    "cpu": draw(st.sampled_from((1, 30))),
                    "owner": draw(st.sampled_from(("ReplicaSet", "ReplicaSet", ""))),
                    "labels": {"app": draw(st.sampled_from(("a", "b")))},
                }
                pods[f"p{len(pods)}"] = (node, f"{gpu}:{part}", fields)
    return Compacting(nodes, pods)


@given(clusters(), st.integers(1, 3), st.sampled_from(PARTS), st.integers(0, 2))
def test_after_the_moves_in_their_order_the_claim_fits(made: Compacting, count: int, milli: int, allowed: int) -> None:
    rules = EvictionRules(budgets=by_namespace([budget("a", allowed, app="a")]))
    advice = made.room(count, milli, rules=rules)
    moved = [made.named(move.pod) for move in advice.moves]
    assert sum(pod.metadata.labels["app"] == "a" for pod in moved) <= allowed
    assert all(pod.metadata.owner_references for pod in moved)
    made.act(advice)
    if advice.moves:
        assert not advice.fits
        assert advice.node in made.room(count, milli, rules=rules).fits
    assert advice.complete


@given(clusters(), st.integers(0, 12))
def test_questions_are_counted(made: Compacting, most: int) -> None:
    advice = made.room(2, most=most)
    assert advice.decisions <= most
    assert advice.complete or advice.decisions == most
    made.act(advice)
