"""The values of an attribute over a view: what a view keeps of them is linear in its devices."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dra_extender.allocation.constraints import AttributeTable
from dra_extender.allocation.requests import prepare
from dra_extender.allocation.scenario import Scenario
from dra_extender.allocation.task import AllocationTask
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from tests.support.allocation.scenarios import DRIVER, claim, device, request, resource_slice, scenario

SAME = {"matchAttribute": f"{DRIVER}/value"}


def task(count: int, values: int) -> AllocationTask:
    """Two claims that constrain an attribute. Devices have this many values of it."""
    content = [device(f"d{number}", {"value": number % values}) for number in range(count)]
    claims = [claim(request("r"), name=name, constraints=[SAME]) for name in ("a", "b")]
    found = Scenario(scenario([resource_slice(content)], claims))
    view = node_view(found.node, found.slices, found.rules, found.features)
    prepared: Any = prepare(found.claims, found.classes, found.features)
    return AllocationTask(prepared, view, NodeHoldings(view, {}))


@pytest.mark.parametrize(
    ("count", "values", "kept"), [(8, 8, True), (512, 512, True), (4_000, 500, True), (4_000, 4_000, False)]
)
def test_a_view_keeps_masks_that_take_no_more_memory_than_its_devices(count: int, values: int, kept: bool) -> None:
    tables = [item for item in task(count, values).view.memo.values() if isinstance(item, AttributeTable)]
    assert len(tables) == kept
    assert sum(sys.getsizeof(group) for table in tables for group in table.groups) < 100 * count


@pytest.mark.parametrize("values", [2, 600])
def test_claims_that_constrain_one_attribute_share_its_values(values: int) -> None:
    first, second = task(600, values).constraints
    assert first.table is second.table
