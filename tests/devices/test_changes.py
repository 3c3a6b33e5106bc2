"""The log of changed nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.devices.changelog import ChangeLog


def test_a_reader_learns_each_changed_node_once() -> None:
    log = ChangeLog[int]()
    position = log.position
    for node in (3, 5, 3):
        log.note(node)
    assert sorted(log.since(position) or ()) == [3, 5]
    assert list(log.since(log.position) or ()) == []


def test_a_new_reader_starts_with_everything() -> None:
    assert ChangeLog[int]().since(-1) is None


def test_a_change_of_all_nodes_makes_every_reader_start_over() -> None:
    log = ChangeLog[int]()
    position = log.position
    log.note_all()
    assert log.since(position) is None
    assert list(log.since(log.position) or ()) == []


@given(st.lists(st.none() | st.integers(0, 5), max_size=60), st.integers(0, 59), st.integers(2, 8))
def test_a_reader_never_misses_a_change(events: list[int | None], read_after: int, capacity: int) -> None:
    log = ChangeLog[int](capacity)
    position, missed = log.position, set[int]()
    for index, node in enumerate(events):
        if node is None:
            log.note_all()
            missed |= set(range(6))
        else:
            log.note(node)
            missed.add(node)
        if index == read_after:
            position, missed = log.position, set()
    found = log.since(position)
    assert found is None or missed <= set(found)
