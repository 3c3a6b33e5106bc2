"""What readers of the board hear, and what it costs to have many and slow ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.http.page.board import REMEMBERED_DROPS, Board, Reader


class Listener:
    """A reader, and what it knows."""

    def __init__(self, board: Board, since: int | None = None, known: dict[str, bytes] | None = None) -> None:
        self.rings = 0
        self.reader: Reader = board.join(since, self._ring)
        self.known = dict(known or {}) if self.reader.resumed else {}
        self._board = board

    def _ring(self) -> None:
        self.rings += 1

    def hear(self, most: int = 1_000_000) -> int:
        """Take one batch; returns how much is left. A part begins with its key."""
        batch = self.reader.take(most)
        for part in batch.put:
            self.known[part.decode().partition("=")[0]] = part
        for key in batch.drop:
            self.known.pop(key, None)
        return batch.behind


def put(board: Board, key: str, value: int) -> None:
    board.put(key, f"{key}={value}".encode())


def test_who_comes_hears_of_everything_in_bounded_portions() -> None:
    board = Board()
    for number in range(10):
        put(board, f"k{number}", 0)
    listener = Listener(board)
    assert [listener.hear(4) for _ in range(3)] == [6, 2, 0]
    assert len(listener.known) == 10


def test_of_a_part_that_changes_often_a_slow_reader_hears_the_last_version_once() -> None:
    board = Board()
    listener = Listener(board)
    for value in range(1000):
        put(board, "k", value)
    assert listener.hear(1) == 0
    assert listener.known == {"k": b"k=999"}


def test_a_part_that_is_put_as_it_was_is_no_news() -> None:
    board = Board()
    put(board, "k", 1)
    listener = Listener(board)
    listener.hear()
    put(board, "k", 1)
    board.ring()
    assert (listener.rings, listener.reader.is_behind, board.version) == (0, False, 1)


def test_a_ring_tells_those_for_whom_there_is_something() -> None:
    board = Board()
    first, second = Listener(board), Listener(board)
    put(board, "k", 1)
    second.hear()
    board.ring()
    board.ring()
    assert (first.rings, second.rings) == (1, 0)


def test_who_comes_back_hears_of_changes_only() -> None:
    board = Board()
    for key in "abc":
        put(board, key, 0)
    listener = Listener(board)
    listener.hear()
    version = board.version
    board.leave(listener.reader)
    put(board, "b", 1)
    board.drop("c")
    again = Listener(board, version, listener.known)
    batch = again.reader.take(100)
    assert (again.reader.resumed, batch.put, batch.drop) == (True, (b"b=1",), ("c",))


def test_who_comes_back_too_late_begins_anew() -> None:
    board = Board()
    put(board, "a", 0)
    version = board.version
    for number in range(REMEMBERED_DROPS + 1):
        put(board, f"k{number}", 0)
        board.drop(f"k{number}")
    assert not Listener(board, version).reader.resumed
    assert Listener(board, board.version).reader.resumed
    assert not Listener(board, board.version + 1).reader.resumed, "that is no version of this board"


def test_who_has_left_is_told_nothing() -> None:
    board = Board()
    listener = Listener(board)
    board.leave(listener.reader)
    put(board, "k", 1)
    board.ring()
    assert (board.readers, listener.rings, listener.reader.is_behind) == (0, 0, False)


KEYS = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("drop"), KEYS, st.just(0)),
        st.tuples(st.just("hear"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("back"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_however_it_reads_a_reader_knows_in_the_end_what_is_on_the_board(steps: list[tuple[str, str, int]]) -> None:
    board = Board()
    listener, version = Listener(board), 0
    for step, key, number in steps:
        if step == "put":
            put(board, key, number)
        elif step == "drop":
            board.drop(key)
        elif step == "hear":
            before = board.version
            if not listener.hear(number):
                version = before
        elif not listener.reader.is_behind:  # only who has heard of everything knows a version
            board.leave(listener.reader)
            listener = Listener(board, version if listener.known else None, listener.known)
    while listener.hear(2):
        pass
    assert listener.known == {key: board.get(key) for key in board.keys("")}
