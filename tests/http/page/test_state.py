"""What open pages receive of the page state, and what many and slow ones cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.http.page.updates import BYTES_OF_BATCH, REMEMBERED_DROPS, PageState, Subscriber


class Page:
    """A subscriber, and what it has received."""

    def __init__(self, state: PageState, since: int | None = None, known: dict[str, bytes] | None = None) -> None:
        self.notified = 0
        self.subscriber: Subscriber = state.subscribe(since, self._notify)
        self.known = dict(known or {}) if self.subscriber.resumed else {}
        self._state = state

    def _notify(self) -> None:
        self.notified += 1

    def take(self, most: int = 1_000_000) -> int:
        """Take one batch; returns how much is left. A part begins with its key."""
        batch = self.subscriber.take(most)
        for part in batch.put:
            self.known[part.decode().partition("=")[0]] = part
        for key in batch.drop:
            self.known.pop(key, None)
        return batch.behind


def put(state: PageState, key: str, value: int) -> None:
    state.put(key, f"{key}={value}".encode())


def test_a_batch_ends_after_a_large_part() -> None:
    state = PageState()
    for number in range(4):
        state.put(f"k{number}", f"k{number}=".encode() + bytes(BYTES_OF_BATCH // 2))
    page = Page(state)
    assert [page.take(), page.take()] == [2, 0]
    assert len(page.known) == 4


def test_a_new_page_receives_everything_in_bounded_batches() -> None:
    state = PageState()
    for number in range(10):
        put(state, f"k{number}", 0)
    page = Page(state)
    assert [page.take(4) for _ in range(3)] == [6, 2, 0]
    assert len(page.known) == 10


def test_a_slow_page_receives_the_last_version_of_a_part_once() -> None:
    state = PageState()
    page = Page(state)
    for value in range(1000):
        put(state, "k", value)
    assert page.take(1) == 0
    assert page.known == {"k": b"k=999"}


def test_an_equal_part_changes_nothing() -> None:
    state = PageState()
    put(state, "k", 1)
    page = Page(state)
    page.take()
    put(state, "k", 1)
    state.publish()
    assert (page.notified, page.subscriber.is_behind, state.version) == (0, False, 1)


def test_only_pages_that_are_behind_are_notified() -> None:
    state = PageState()
    first, second = Page(state), Page(state)
    put(state, "k", 1)
    second.take()
    state.publish()
    state.publish()
    assert (first.notified, second.notified) == (1, 0)


def test_a_page_that_comes_back_receives_only_changes() -> None:
    state = PageState()
    for key in "abc":
        put(state, key, 0)
    page = Page(state)
    page.take()
    version = state.version
    state.unsubscribe(page.subscriber)
    put(state, "b", 1)
    state.drop("c")
    again = Page(state, version, page.known)
    batch = again.subscriber.take(100)
    assert (again.subscriber.resumed, batch.put, batch.drop) == (True, (b"b=1",), ("c",))


def test_a_page_that_comes_back_too_late_starts_over() -> None:
    state = PageState()
    put(state, "a", 0)
    version = state.version
    for number in range(REMEMBERED_DROPS + 1):
        put(state, f"k{number}", 0)
        state.drop(f"k{number}")
    assert not Page(state, version).subscriber.resumed
    assert Page(state, state.version).subscriber.resumed
    assert not Page(state, state.version + 1).subscriber.resumed, "that is no version of this state"


def test_a_page_that_has_left_is_not_notified() -> None:
    state = PageState()
    page = Page(state)
    state.unsubscribe(page.subscriber)
    put(state, "k", 1)
    state.publish()
    assert (state.subscribers, page.notified, page.subscriber.is_behind) == (0, 0, False)


KEYS = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("drop"), KEYS, st.just(0)),
        st.tuples(st.just("take"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("back"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_however_it_reads_a_page_ends_with_the_current_state(steps: list[tuple[str, str, int]]) -> None:
    state = PageState()
    page, version = Page(state), 0
    for step, key, number in steps:
        if step == "put":
            put(state, key, number)
        elif step == "drop":
            state.drop(key)
        elif step == "take":
            before = state.version
            if not page.take(number):
                version = before
        elif not page.subscriber.is_behind:  # only who has heard of everything knows a version
            state.unsubscribe(page.subscriber)
            page = Page(state, version if page.known else None, page.known)
    while page.take(2):
        pass
    assert page.known == {key: state.get(key) for key in state.keys("")}
