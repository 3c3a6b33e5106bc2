"""The service in a process whose time of day is off and drifts: `python -m tools.chaos.oddclock serve ...`."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from unittest import mock

from dra_extender.cli.main import main
from dra_extender.scheduling.handle import SystemClock

VARIABLE = "CHAOS_CLOCK"
"""Seconds off, and seconds per second: `3600 0.01`."""


def _wall(clock: SystemClock) -> datetime:
    offset, drift = map(float, os.environ[VARIABLE].split())
    return datetime.now(UTC) + timedelta(seconds=offset + drift * clock.monotonic())


if __name__ == "__main__":
    with mock.patch.object(SystemClock, "wall", _wall):
        main()
