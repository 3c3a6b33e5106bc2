"""What the benchmark of a backlog makes of its run: which limits it holds, and what it says when one is broken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.backlog import Found, Plan, markdown, percentile, problems, verdict

GOOD = Found(
    plan=Plan(nodes=200, refused=500, updates=100.0, arrivals=4.0, seconds=300.0),
    updates=99.9,
    taken=[0.1] * 1200,
    cores={"scheduler": 0.3, "service": 0.2},
    strangers=0.1,
    calls={"refused": 15000.0, "fits": 1200.0},
    attempt=0.002,
    answer=0.0003,
    searches=7.0,
    requeues=290.0,
    waking=[3.0, 4.0, 5.0, 6.0],
    left=0,
    flushed=0.0,
    twice=0,
)


def test_a_good_run_keeps_all_limits() -> None:
    assert problems(GOOD) == []
    assert verdict(GOOD) == "all limits are kept"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"updates": 80.0}, "only 80.0 updates per second"),
        ({"taken": [0.1] * 1180 + [1.5] * 20}, "p99 from creation to binding is 1.500 s"),
        ({"cores": {"service": 1.2}}, "the service used 1.20 cores"),
        ({"waking": [3.0, 290.0]}, "pods waited 290.0 s for devices that were there"),
        ({"left": 2}, "2 refused pods were never bound"),
        ({"flushed": 1.0}, "1 pods were bound only after kube-scheduler's own retry"),
        ({"twice": 1}, "1 devices are in two claims"),
    ],
)
def test_a_broken_limit_fails_the_run_and_is_named(change: dict[str, Any], told: str) -> None:
    assert problems(msgspec.structs.replace(GOOD, **change)) == [told]


def test_one_slow_pod_in_a_hundred_is_within_the_limit() -> None:
    assert problems(msgspec.structs.replace(GOOD, taken=[0.1] * 99 + [1.5])) == []


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_the_section_has_every_limit_and_ends_with_the_verdict() -> None:
    lines = markdown(GOOD, "Machine: 2 cores").splitlines()
    assert lines[-1] == "All limits are kept."
    assert "| creation to binding, p99 | 0.100 s | < 1 s |" in lines
