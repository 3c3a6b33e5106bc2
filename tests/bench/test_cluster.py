"""What the benchmark on a real control plane makes of its rounds."""

from __future__ import annotations

import msgspec
import pytest

from bench.cluster import Row, Side, markdown, passed, summary

GOOD = Side(pods_per_second=50.0, writes_per_pod=3.0, unbound=0, twice=0, cpu_ms={}, rounds=[50.0])
ROW = Row("one device", 500, GOOD, GOOD, 1.0)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ROW, True),
        (msgspec.structs.replace(ROW, ratio=0.99), False),
        (msgspec.structs.replace(ROW, ours=msgspec.structs.replace(GOOD, twice=1)), False),
        (msgspec.structs.replace(ROW, in_tree=msgspec.structs.replace(GOOD, twice=1)), False),
        (msgspec.structs.replace(ROW, ours=msgspec.structs.replace(GOOD, unbound=1)), False),
    ],
)
def test_one_bad_row_fails_the_run(row: Row, expected: bool) -> None:
    assert passed([ROW, row]) is expected


def test_the_last_line_names_the_lowest_ratio_and_its_row() -> None:
    rows = [ROW, Row("matched pair", 5_000, GOOD, GOOD, 0.5)]
    assert summary(rows) == "lowest ratio: 0.50 (5,000 nodes, matched pair)"


def test_pods_that_were_left_when_a_round_was_given_up_are_in_the_table() -> None:
    cut_off = msgspec.structs.replace(ROW, in_tree=msgspec.structs.replace(GOOD, unbound=12))
    assert "50.0 (12 not bound)" in markdown([cut_off], "")
