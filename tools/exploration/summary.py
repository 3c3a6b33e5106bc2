"""At the end of a test run: how many states the explored worlds have, all together.

Each test that walks through a world records what it saw; the sum is printed wherever it ran.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tools.exploration.search import Explored

STATES, TRANSITIONS = "explored states", "explored transitions"


def record(explored: Explored, record_property: Callable[[str, object], None]) -> None:
    """Leave the numbers in the report of the test."""
    record_property(STATES, explored.states)
    record_property(TRANSITIONS, explored.transitions)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line, when a world was explored."""
    found = [
        dict(report.user_properties)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    worlds = [properties for properties in found if STATES in properties]
    if worlds:
        states, transitions = (sum(int(str(world[what])) for world in worlds) for what in (STATES, TRANSITIONS))
        terminalreporter.write_line(
            f"explored: {len(worlds)} worlds of binds, {states:,} states, {transitions:,} transitions"
        )
