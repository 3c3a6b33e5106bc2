"""A plugin of pytest: a failure is shown when it happens, because a run is long and may be broken off."""

from __future__ import annotations

import pytest


class Live:
    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        self._reporter.ensure_newline()
        self._reporter.write_line(f"{report.nodeid} failed at its {report.when}")
        for line in report.longreprtext.splitlines():
            if line.startswith("E "):
                self._reporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):  # the workers of xdist have none
        config.pluginmanager.register(Live(reporter))
