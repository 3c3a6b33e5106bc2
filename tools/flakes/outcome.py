"""What became of all the runs: which tests failed, how often, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """A test that failed, or a run that ended before its tests did."""

    test: str
    error: str
    """The first line."""


class Run(msgspec.Struct, frozen=True):
    """One run of pytest."""

    tests: int
    failures: tuple[Failure, ...] = ()


def read(report: Path, status: int) -> Run:
    """The run that wrote this JUnit report and ended with this status, 0 or 1 where all tests had their turn."""
    try:
        suites = list(ElementTree.parse(report).iter("testsuite"))
    except (FileNotFoundError, ElementTree.ParseError):
        suites = []
    tests = sum(int(suite.get("tests", "0")) for suite in suites)
    failures = [failure for suite in suites for case in suite.iter("testcase") for failure in _failures(case)]
    if status != 0 and not (status == 1 and failures):
        failures.append(Failure("the run itself", f"pytest ended with status {status} after {_times(tests, 'test')}"))
    return Run(tests, tuple(failures))


def summary(runs: Sequence[Run]) -> list[str]:
    """For people: a line per failed test and error, the most frequent first; or one line when nothing failed."""
    found = [failure for run in runs for failure in run.failures]
    tests = max((run.tests for run in runs), default=0)
    headline = f"{_times(len(found), 'failure')} in {_times(len(runs), 'run')} of {_times(tests, 'test')}"
    lines = [f"  {count} × {failure.test}\n      {failure.error}" for failure, count in Counter(found).most_common()]
    return [headline, *lines]


def _failures(case: ElementTree.Element) -> Iterator[Failure]:
    """A test can fail twice: by itself, and when it is taken down."""
    for problem in (*case.findall("failure"), *case.findall("error")):
        text = problem.get("message") or problem.text or "no message"
        yield Failure(_name(case), text.strip().splitlines()[0])


def _name(case: ElementTree.Element) -> str:
    """As pytest takes it: the file, a class if there is one, the test."""
    *path, last = case.get("classname", "").split(".")
    where = [f"{'/'.join(path)}.py", last] if last.startswith("Test") else [f"{'/'.join([*path, last])}.py"]
    return "::".join([*where, case.get("name", "")])


def _times(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
