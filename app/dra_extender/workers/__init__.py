"""Worker processes: questions that are too large for the event loop, answered with a deadline and a memory limit.

`pool` starts and ends processes, `__main__` is what runs in one of them, and `wire` is what they say to each other.
"""

from __future__ import annotations

import msgspec

from dra_extender.allocation.plan import STEP_BUDGET


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` of CPU time and `memory` in bytes for one question. A machine that is busy may take `patience` times as
    long. `idle_seconds`: a process without questions ends.
    """

    count: int = 2
    seconds: float = 2.0
    patience: float = 5.0
    memory: int = 512 * 2**20
    idle_seconds: float = 60.0
    step_budget: int = 10 * STEP_BUDGET
