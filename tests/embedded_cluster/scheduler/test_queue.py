"""The scheduling queue, on a clock that the tests turn."""

from __future__ import annotations

from embedded_cluster.scheduler.queue import FLUSH_AFTER, Refuser, SchedulingQueue, Wakeup

EXTENDER: frozenset[Refuser] = frozenset(("extender",))
RESOURCES: frozenset[Refuser] = frozenset(("resources",))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock, *, pop_from_backoff: bool = True) -> SchedulingQueue[str]:
    return SchedulingQueue(clock, pop_from_backoff=pop_from_backoff)


def pop(queue: SchedulingQueue[str]) -> str | None:
    item = queue.pop()
    return item.uid if item is not None else None


def test_pods_come_by_priority_then_by_age() -> None:
    clock = Clock()
    queue = make(clock)
    for uid, priority in (("old", 0), ("urgent", 10), ("young", 0)):
        queue.add(uid, uid, priority)
        clock.now += 1
    assert [pop(queue), pop(queue), pop(queue), pop(queue)] == ["urgent", "old", "young", None]


def test_a_refused_pod_waits_until_an_event_that_concerns_its_refuser() -> None:
    clock = Clock()
    queue = make(clock)
    queue.add("a", "a", 0)
    assert pop(queue) == "a"
    queue.refused("a", RESOURCES)
    queue.wake(Wakeup("claim"))
    assert pop(queue) is None
    queue.wake(Wakeup("bound pod gone"))
    assert pop(queue) == "a"


def test_an_event_during_the_attempt_counts_when_it_ends() -> None:
    queue = make(Clock())
    queue.add("a", "a", 0)
    assert pop(queue) == "a"
    queue.wake(Wakeup("claim"))
    queue.refused("a", EXTENDER)
    assert pop(queue) == "a"


def test_an_event_before_the_attempt_does_not_count() -> None:
    queue = make(Clock())
    queue.add("a", "a", 0)
    queue.wake(Wakeup("claim"))
    assert pop(queue) == "a"
    queue.refused("a", EXTENDER)
    assert pop(queue) is None


def test_overlapping_attempts_each_see_their_own_events() -> None:
    queue = make(Clock())
    for uid in "ab":
        queue.add(uid, uid, 0)
    assert pop(queue) == "a"
    queue.wake(Wakeup("claim"))
    assert pop(queue) == "b"
    queue.refused("b", EXTENDER)
    queue.refused("a", EXTENDER)
    assert pop(queue) == "a"
    assert pop(queue) is None


def test_backoff_grows_to_its_limit_when_it_is_honoured() -> None:
    clock = Clock()
    queue = make(clock, pop_from_backoff=False)
    queue.add("a", "a", 0)
    pauses = []
    for _ in range(6):
        assert pop(queue) == "a"
        queue.refused("a", EXTENDER)
        queue.wake(Wakeup("class"))
        assert pop(queue) is None
        due = queue.next_due()
        assert due is not None
        pauses.append(due - clock.now)
        clock.now = due
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_an_idle_scheduler_pops_a_refused_pod_out_of_its_backoff() -> None:
    queue = make(Clock())
    queue.add("a", "a", 0)
    assert pop(queue) == "a"
    queue.refused("a", EXTENDER)
    queue.add("b", "b", 0)
    queue.wake(Wakeup("class"))
    assert [pop(queue), pop(queue)] == ["b", "a"]


def test_errors_back_off_in_full_and_need_no_event() -> None:
    clock = Clock()
    queue = make(clock)
    queue.add("a", "a", 0)
    assert pop(queue) == "a"
    queue.failed("a")
    assert pop(queue) is None
    clock.now += 1
    assert pop(queue) == "a"
    queue.failed("a")
    clock.now += 1
    assert pop(queue) is None
    clock.now += 1
    assert pop(queue) == "a"


def test_a_change_of_the_pod_itself_wakes_it() -> None:
    queue = make(Clock())
    queue.add("a", "a", 0)
    assert pop(queue) == "a"
    queue.refused("a", EXTENDER)
    queue.update("a", "a, newer", Wakeup("own pod"))
    item = queue.pop()
    assert item is not None and item.pod == "a, newer"


def test_a_gated_pod_is_not_tried_before_its_gate_opens() -> None:
    allowed: set[str] = set()
    queue: SchedulingQueue[str] = SchedulingQueue(Clock(), gate=lambda pod: pod in allowed)
    queue.add("a", "a", 0)
    queue.wake(Wakeup("claim"))
    assert pop(queue) is None
    allowed.add("a")
    queue.wake(Wakeup("class"))
    assert pop(queue) is None, "classes do not make claims exist"
    queue.wake(Wakeup("claim"))
    assert pop(queue) == "a"


def test_a_removed_pod_is_gone_wherever_it_was() -> None:
    queue = make(Clock())
    for uid in "abc":
        queue.add(uid, uid, 0)
    assert [pop(queue), pop(queue)] == ["a", "b"]
    queue.refused("a", EXTENDER)
    for uid in "abc":
        queue.remove(uid)
    queue.refused("b", EXTENDER)
    queue.wake(Wakeup("class"))
    assert pop(queue) is None and len(queue) == 0


def test_after_five_minutes_a_pod_is_tried_without_an_event() -> None:
    clock = Clock()
    queue = make(clock)
    queue.add("a", "a", 0)
    assert pop(queue) == "a"
    queue.refused("a", EXTENDER)
    clock.now += FLUSH_AFTER
    queue.flush()
    assert pop(queue) is None
    clock.now += 1
    queue.flush()
    assert pop(queue) == "a"
