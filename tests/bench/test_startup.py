"""The benchmark of a start asks a real process, and waits for a new list."""

from __future__ import annotations

import asyncio

from bench.startup import SIZES, Size, markdown, measure


def test_a_row_is_measured_with_a_service_that_lists_everything_again() -> None:
    row = asyncio.run(measure(Size(nodes=3, claims=6)))
    assert row.ready_cpu > 0 and row.memory > 0
    assert row.first > 0 and 0 < row.median <= row.worst
    assert row.listed > 0 and row.listing_worst > 0
    assert f"| 3 × 8 | 6 | {row.ready:.1f} |" in markdown([row])


def test_the_largest_cluster_has_fifteen_thousand_nodes_and_a_hundred_thousand_claims() -> None:
    assert Size(nodes=15_000, claims=100_000) in SIZES
