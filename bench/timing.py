"""Timing one call many times.

Time is processor time of this thread: on an idle machine it equals time by the clock, and on a busy one it stays right.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from time import thread_time_ns

import msgspec

Call = Callable[[], object]


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds."""

    median: float
    p95: float
    runs: int


def timed(call: Call, *, runs: int, before: Call = lambda: None) -> Timing:
    """Times `call`, not `before`, which prepares each run. The garbage collector rests, as in the service."""
    return alternating({"": (before, call)}, runs=runs)[""]


def alternating(calls: Mapping[str, tuple[Call, Call]], *, runs: int) -> dict[str, Timing]:
    """As `timed`, of several calls in turn, each with what prepares it: a machine that gets slower or faster favours
    none of them.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            for name, (before, call) in calls.items():
                before()
                start = thread_time_ns()
                call()
                taken[name].append((thread_time_ns() - start) / 1e6)
    finally:
        gc.enable()
    return {name: _timing(times) for name, times in taken.items()}


def _timing(taken: Sequence[float]) -> Timing:
    p95 = quantiles(taken, n=20)[-1] if len(taken) > 1 else taken[0]
    return Timing(round(median(taken), 4), round(p95, 4), len(taken))
