"""What the benchmark of growth measures, and what it calls missed."""

from __future__ import annotations

import msgspec
import pytest

from bench.growth import SIZES, Row, Size, markdown, measure, missed

ROW = Row(Size(), median=2.0, p99=4.0, memory=110.0)


@pytest.mark.parametrize(
    ("row", "names"),
    [
        (ROW, []),
        (msgspec.structs.replace(ROW, p99=20.1), ["growth: filter 20.1 ms on 5000 nodes"]),
        (msgspec.structs.replace(ROW, memory=501.0), ["growth: 501 MiB with 5000 nodes"]),
    ],
)
def test_what_takes_longer_or_more_than_it_should_is_named(row: Row, names: list[str]) -> None:
    assert missed({"rows": [msgspec.to_builtins(ROW), msgspec.to_builtins(row)]}) == names


def test_a_row_is_measured_with_claims_and_pods_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.growth.RUNS", 3)
    monkeypatch.setattr("bench.growth.ProcessMemory", lambda own: type("Untouched", (), {"freeze": lambda _: None})())
    row = measure(Size(nodes=20, devices=2, claims=5, pods=4))
    assert 0 < row.median <= row.p99
    assert f"| 20 | 2 | 5 | 4 | {row.median:.2f} |" in markdown({"rows": [msgspec.to_builtins(row)]})


def test_the_largest_cluster_has_fifteen_thousand_nodes_full_of_claims_and_pods() -> None:
    assert Size(nodes=15_000, claims=15_000, pods=10_000) in SIZES
