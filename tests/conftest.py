"""What holds for every test: an unexpected error fails it, and so does what it leaves behind."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator

import pytest
import structlog

from dra_extender.limits import FRAMES
from dra_extender.unexpected import tolerate
from tests.support.unexpected import REPORTS, Reports, outlive, refuse

pytest_plugins = ["tests.support.examples", "tests.support.leftovers", "tools.exploration.summary"]

sys.setrecursionlimit(FRAMES)  # as the entry points do


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than processors: many tests wait for sockets, processes and the pauses of a served loop."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def unexpected_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """A report of an unexpected error raises, and fails the test even where the raised error is lost on the way.

    A test that plants one asks for `tolerated`, or for `raises_unexpected` around it.
    """
    REPORTS.clear()
    before = tolerate(refuse)
    yield
    tolerate(before)
    if REPORTS and "tolerated" not in request.fixturenames:
        place, problem = REPORTS[0]
        raise AssertionError(f"{len(REPORTS)} unexpected errors, the first at {place!r}") from problem


@pytest.fixture
def tolerated(unexpected_errors: None) -> Reports:
    """Unexpected errors are outlived in this test as in production. The list of them, for the test to look at."""
    tolerate(outlive)
    return REPORTS


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Logging is set up per process: it is left as it was."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
