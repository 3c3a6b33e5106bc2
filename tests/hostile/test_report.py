"""The verdict: what stalls, loses or keeps something is seen, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from tools.hostile import eyes
from tools.hostile.feeding import Fed
from tools.hostile.observer import Look
from tools.hostile.ordeal import Family, Quiet, Trial
from tools.hostile.report import GROWTH, Report
from tools.hostile.things import Objects, Thing


def look(seconds: float, *, waited: float = 0.0, what: Any = "probe", at: float = 0.0) -> Look:
    return Look(what, at, seconds, waited, seconds - waited if what == "turn" else 0.0, 200)


def trial(*looks: Look, killed: str = "", refused: str = "", told: str = "no") -> Trial:
    return Trial(Fed(Thing("family", "thing", Objects(())), (told,), refused), list(looks), killed)


class Finished:
    """A run that is over."""

    def __init__(self, *trials: Trial, growth: int = 0, total: int = 0, lost: tuple[str, ...] = ()) -> None:
        self.quiet = Quiet([look(0.02), look(0.05)], 10**8)
        self.families = [Family("family", list(trials), growth, 0)]
        self.growth = total
        self.wrong: tuple[str, ...] = ()
        self.stream = Stream(lost)


class Stream:
    def __init__(self, lost: tuple[str, ...]) -> None:
        self.lost = list(lost)
        self.made, self.waited = 3, {"a": 0.1}


def report(*trials: Trial, **more: Any) -> Report:
    return Report(Finished(*trials, **more))  # type: ignore[arg-type]


def test_a_run_in_which_nothing_happened_is_good() -> None:
    made = report(trial(look(0.149), look(3.0, what="filter")))
    assert list(made.problems()) == []
    assert made.verdict() == "stalled: 0, lost: 0"


@pytest.mark.parametrize("what", ["turn", "probe", "connection"])
def test_a_stall_of_100_ms_beyond_the_longest_of_the_quiet_time_counts(what: str) -> None:
    made = report(trial(look(0.151, what=what)))
    assert made.verdict() == "stalled: 1, lost: 0"
    assert list(made.problems()) == [f"STALLED: family: thing: 0.15 s ({what})"]


def test_a_long_turn_is_reported_with_what_the_loop_did() -> None:
    made = report(trial(Look("turn", 0.0, 0.2, 0.0, 0.2, 200, "parser.py:7 parse")))
    assert list(made.problems()) == ["STALLED: family: thing: 0.20 s (turn): parser.py:7 parse"]


def test_time_without_a_core_is_the_machines_and_is_shown_as_such() -> None:
    late = look(2.0, waited=1.9)
    made = report(trial(late))
    assert made.verdict() == "stalled: 0, lost: 0"
    assert eyes.machine([late]) == pytest.approx(1.9)


def test_a_stall_that_burns_no_cpu_counts_too() -> None:
    blocked = Look("probe", 0.0, 2.0, 0.0, 0.0, 200)
    assert report(trial(blocked)).verdict() == "stalled: 1, lost: 0"


def test_many_short_turns_before_an_answer_are_no_stall() -> None:
    late = Look("probe", 0.0, 2.0, 0.5, 1.5, 200)
    assert report(trial(late, look(0.1, what="turn"))).verdict() == "stalled: 0, lost: 0"


def test_a_service_that_had_to_be_replaced_has_stalled() -> None:
    made = report(trial(killed="no answer for 30 s: killed"))
    assert list(made.problems()) == ["STALLED: family: thing: no answer for 30 s: killed"]


def test_a_pod_of_another_namespace_without_an_event_is_starved() -> None:
    fed = Fed(Thing("family", "thing", Objects(())), ("no",), starved=True)
    assert list(report(Trial(fed, [])).problems()) == [
        "STARVED: family: thing: a pod of another namespace got no event"
    ]


def test_a_pod_that_was_not_bound_is_lost() -> None:
    made = report(trial(), lost=("ordinary-7",))
    assert made.verdict() == "stalled: 0, lost: 1"
    assert list(made.problems()) == ["LOST: ordinary-7 was not bound"]


def test_memory_that_is_not_given_back_is_a_problem_of_the_family_and_of_the_run() -> None:
    assert list(report(trial(), growth=GROWTH, total=GROWTH).problems()) == []
    assert list(report(trial(), growth=GROWTH + 2**20).problems()) == ["GREW: family: +65 MiB"]
    assert list(report(trial(), total=GROWTH + 2**20).problems()) == ["GREW: all together: +65 MiB"]


def test_what_the_api_server_refused_does_not_count_as_fed() -> None:
    made = report(trial(), trial(refused="too long"))
    assert made.fed == 1


def test_the_99th_percentile_is_that_of_filter() -> None:
    looks = [look(0.001 * number, what="filter") for number in range(1, 101)] + [look(9.0)]
    assert eyes.percentile(looks) == pytest.approx(0.1)
    assert eyes.percentile([]) == 0.0
