"""Timing one call many times.

Time is processor time of this thread: on an idle machine it equals time by the clock, and on a busy one it stays right.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median, quantiles
from time import thread_time_ns

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds."""

    median: float
    p95: float
    runs: int


def timed(call: Callable[[], object], *, runs: int, before: Callable[[], object] = lambda: None) -> Timing:
    """Times `call`, not `before`, which prepares each run. The garbage collector rests, as in the service."""
    taken: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            before()
            start = thread_time_ns()
            call()
            taken.append((thread_time_ns() - start) / 1e6)
    finally:
        gc.enable()
    p95 = quantiles(taken, n=20)[-1] if len(taken) > 1 else taken[0]
    return Timing(round(median(taken), 4), round(p95, 4), runs)
