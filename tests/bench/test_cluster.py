"""What the benchmark on a real control plane makes of its rounds."""

from __future__ import annotations

import msgspec
import pytest

from bench.cluster import Row, Side, markdown, passed, shapes, summary
from bench.steady import PACES, Arrivals, SteadyRow, row

GOOD = Side(pods_per_second=50.0, writes_per_pod=3.0, unbound=0, twice=0, cpu_ms={}, rounds=[50.0])
ROW = Row("one device", 500, GOOD, GOOD, 1.0)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ROW, True),
        (msgspec.structs.replace(ROW, ratio=0.99), False),
        (msgspec.structs.replace(ROW, gang=8, ratio=1.49), False),
        (msgspec.structs.replace(ROW, gang=8, ratio=1.5), True),
        (msgspec.structs.replace(ROW, ours=msgspec.structs.replace(GOOD, twice=1)), False),
        (msgspec.structs.replace(ROW, in_tree=msgspec.structs.replace(GOOD, twice=1)), False),
        (msgspec.structs.replace(ROW, ours=msgspec.structs.replace(GOOD, unbound=1)), False),
    ],
)
def test_one_bad_row_fails_the_run(row: Row, expected: bool) -> None:
    assert passed([ROW, row]) is expected


STEADY = SteadyRow(500, 20, 0.05, 0.2, 0.02, 0.1, 0)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (STEADY, True),
        (msgspec.structs.replace(STEADY, our_p99=0.21), False),
        (msgspec.structs.replace(STEADY, unbound=1), False),
    ],
)
def test_pods_that_wait_longer_than_with_the_in_tree_plugin_fail_the_run(row: SteadyRow, expected: bool) -> None:
    assert passed([ROW], [STEADY, row]) is expected


def test_percentiles_are_those_of_all_rounds_together() -> None:
    rounds = [Arrivals([0.01] * 99), Arrivals([0.01] * 99 + [1.0, 2.0], unbound=3)]
    found = row(500, 20, rounds, [Arrivals([0.5])])
    assert (found.in_tree_median, found.our_median, found.our_p99) == (0.01, 0.5, 0.5)
    assert 0.01 < found.in_tree_p99 <= 1.0
    assert found.unbound == 0, "of ours"


def test_the_table_has_arrivals_in_milliseconds() -> None:
    text = markdown([ROW], "", [STEADY])
    assert "| 500 | 20 | 50 | 200 | 20 | 100 | 2.00 | 0 |" in text


def test_the_spread_of_rounds_is_in_the_table() -> None:
    spread = msgspec.structs.replace(ROW, ours=msgspec.structs.replace(GOOD, rounds=[48.0, 50.0, 52.5]))
    assert "50.0 (48.0 to 52.5)" in markdown([spread], "")


def test_a_row_of_gangs_counts_them() -> None:
    assert "| 50.0, 6.2 gangs/s |" in markdown([msgspec.structs.replace(ROW, gang=8)], "")


def test_every_kind_of_pod_has_a_row_on_both_sizes_of_cluster() -> None:
    rows = {(shape.nodes, shape.title) for shape in shapes()}
    assert {title for nodes, title in rows if nodes == 500} == {
        "one device", "one device, plain HTTP", "one device, gangs of 8", "matched pair", "prioritized list",
    }  # fmt: skip
    assert {title for nodes, title in rows if nodes == 5_000} == {
        "one device", "one device, all nodes scored", "matched pair", "matched pair, all nodes scored",
    }  # fmt: skip
    assert all(shape.pods >= 600 for shape in shapes())
    assert {(pace.nodes, pace.rate) for pace in PACES} == {(500, 20), (500, 50), (5_000, 20), (5_000, 50)}


def test_the_last_line_names_the_lowest_ratio_and_its_row() -> None:
    rows = [ROW, Row("matched pair", 5_000, GOOD, GOOD, 0.5)]
    assert summary(rows) == "lowest ratio: 0.50 (5,000 nodes, matched pair)"


def test_pods_that_were_left_when_a_round_was_given_up_are_in_the_table() -> None:
    cut_off = msgspec.structs.replace(ROW, in_tree=msgspec.structs.replace(GOOD, unbound=12))
    assert "50.0 (12 not bound)" in markdown([cut_off], "")
