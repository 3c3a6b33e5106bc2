"""What `make flakes` says of many runs."""

from __future__ import annotations

from pathlib import Path

from tools.flakes.outcome import Failure, Run, read, summary

REPORT = """<testsuites><testsuite tests="5">
<testcase classname="tests.kube.test_client" name="test_a[1]"/>
<testcase classname="tests.kube.test_client" name="test_b"><failure message="AssertionError: no&#10;more"/></testcase>
<testcase classname="tests.kube.test_client" name="test_c"><error message="failed on teardown">text</error></testcase>
<testcase classname="tests.kube.test_client" name="test_s"><skipped message="no"/></testcase>
<testcase classname="tests.kube.test_client.TestD" name="runTest"><failure message="AssertionError"/></testcase>
</testsuite></testsuites>"""
B = Failure("tests/kube/test_client.py::test_b", "AssertionError: no")
D = Failure("tests/kube/test_client.py::TestD::runTest", "AssertionError")
C = Failure("tests/kube/test_client.py::test_c", "failed on teardown")


def test_a_report_gives_each_failed_test_with_the_first_line_of_its_error(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert read(report, 1) == Run(5, (B, C, D))


def test_a_run_that_breaks_off_is_a_failure_whatever_it_reported(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert [failure.test for failure in read(report, 3).failures] == ["the run itself"]
    assert [failure.test for failure in read(report, 1).failures] == ["the run itself"]
    report.write_text(REPORT)
    assert [failure.test for failure in read(report, 2).failures] == [B.test, C.test, D.test, "the run itself"]


def test_failures_are_counted_by_test_and_error() -> None:
    assert summary([Run(9, (B,)), Run(9), Run(9, (C, B))]) == [
        "3 failures in 3 runs of 9 tests",
        f"  2 × {B.test}\n      AssertionError: no",
        f"  1 × {C.test}\n      failed on teardown",
    ]


def test_without_failures_it_is_one_line() -> None:
    assert summary([Run(1200), Run(1200)]) == ["0 failures in 2 runs of 1,200 tests"]
    assert summary([Run(1)]) == ["0 failures in 1 run of 1 test"]
