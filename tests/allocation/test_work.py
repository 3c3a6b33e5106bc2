"""A search does no more than it is charged for: the work is counted while it is done, inside the proofs as well."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.budget import UNLIMITED
from dra_extender.allocation.plan import Failure
from dra_extender.allocation.proofs.packing import Filling
from dra_extender.allocation.requests import prepare
from dra_extender.allocation.scenario import Scenario
from dra_extender.cel import Work, WorkExceeded
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.usage import holdings_of
from tests.support.allocation import families
from tests.support.allocation.families import DECIDED_BY
from tests.support.counting import calls

CALLS_PER_UNIT: Final = 10
"""A unit is about a microsecond: the most functions of Python and C that one may call."""
UNCOUNTED: Final = 3_000
"""Calls, for what is done once per search."""


def amounts(count: int, low: int, high: int) -> list[int]:
    return random.Random(count).sample(range(low, high), count)


LARGE: Final = {
    "values that differ": families.distinct(30, 8),
    "pairs that differ": families.distinct_pairs(3, 5, 16),
    "lists": families.lists(120, 32),
    "groups": families.together(20, 6, *[5] * 24),
    "groups of two kinds": families.aligned(16, 4, 2, 20, 3),
    "links": families.triangles(20, 30),
    "counters": families.knapsacks(8, 30),
    "amounts of any size": families.shares_of_any_size(5, *amounts(30, 10**8, 4 * 10**8)),
    "two dimensions": families.shares_of_two(12, *zip(amounts(31, 20, 60), amounts(31, 15, 60), strict=True)),
}


@pytest.mark.parametrize("allowed", [2_500, 20_000])
@pytest.mark.parametrize("case", [*DECIDED_BY.values(), *LARGE.values()], ids=[*map(str, DECIDED_BY), *LARGE])
def test_a_search_does_no_more_than_it_is_charged_for(case: Any, allowed: int) -> None:
    found = Scenario(case)
    prepared = prepare(found.claims, found.classes, found.features)
    assert not isinstance(prepared, Failure)
    view = node_view(found.node, found.slices, found.rules, found.features)

    def search(work: Work) -> None:
        """As far as it comes."""
        holdings = NodeHoldings(view, holdings_of(found.allocated, found.features))
        try:
            Allocator(share_ids=lambda: "share").allocate(prepared, view, holdings, UNLIMITED, work)
        except WorkExceeded:
            pass

    search(Work(100))  # selectors are evaluated here, which is counted elsewhere
    work = Work(allowed)
    assert calls(lambda: search(work)) < CALLS_PER_UNIT * (allowed - work.left) + UNCOUNTED


def test_sizes_that_fill_nothing_are_given_up_as_well() -> None:
    sizes = amounts(48, 10**9, 4 * 10**9)
    filling = Filling()
    assert filling.feasible(sizes, [sum(sizes) // 4 + 1] * 4, 100)
    assert filling.gave_up
    assert filling.steps == 101
