"""The queue has kube-scheduler's order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.scheduling.earlynomination.queue import WaitingPods


def test_priority_comes_first_then_who_waits_longer_then_who_was_seen_first() -> None:
    queue = WaitingPods()
    for uid, priority, since in [("d", 0, 2.0), ("c", 0, 1.0), ("b", 0, 1.0), ("a", 5, 9.0)]:
        queue.put(uid, priority, since)
    assert queue.first(9) == ["a", "c", "b", "d"]
    assert queue.first(2) == ["a", "c"]


def test_a_pod_keeps_its_place_until_it_is_refused_or_gets_another_priority() -> None:
    queue = WaitingPods()
    for uid in "abc":
        queue.put(uid, 0, 1.0)
    queue.put("c", 0, 0.0)
    assert queue.first(3) == ["a", "b", "c"]
    queue.refused("a", 5.0)
    assert (queue.first(3), queue.since("a")) == (["b", "c", "a"], 5.0)
    queue.put("c", 9, 1.0)
    assert queue.first(3) == ["c", "b", "a"]
    queue.refused("unknown", 1.0)
    assert len(queue) == 3


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["put", "again", "drop"]), st.sampled_from("abcdef"), st.integers(0, 2), st.integers(0, 3)
    )
)


@given(MOVES)
def test_the_queue_is_what_sorting_would_give(moves: list[tuple[str, str, int, int]]) -> None:
    queue, known, serial = WaitingPods(), dict[str, tuple[int, int, int]](), 0
    for move, uid, priority, since in moves:
        if move == "put":
            queue.put(uid, priority, since)
            if uid not in known or known[uid][0] != -priority:
                serial += 1
                known[uid] = (-priority, since, serial)
        elif move == "again":
            queue.refused(uid, since)
            if uid in known:
                serial += 1
                known[uid] = (known[uid][0], since, serial)
        else:
            queue.drop(uid)
            known.pop(uid, None)
    assert queue.first(10) == sorted(known, key=known.__getitem__)
    assert (len(queue), "a" in queue) == (len(known), "a" in known)
