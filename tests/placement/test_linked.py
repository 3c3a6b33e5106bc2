"""Devices that counters link: what it costs to put them into groups, and to compare what is left of a group."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.allocation.budget import UNLIMITED
from dra_extender.limits import PAIRS_OF_GROUP
from dra_extender.placement.placement import TURN
from tests.support.allocation.costs import LINES_PER_UNIT
from tests.support.counting import lines
from tests.support.placement.gpunodes import GpuNodes, gpus

Json = dict[str, Any]


def linked(*consumed: dict[str, int]) -> GpuNodes:
    """A node with a device for each of these amounts by counter set."""
    made = GpuNodes("pack")
    devices: list[Json] = [
        {
            "name": f"d{index}",
            "consumesCounters": [
                {"counterSet": name, "counters": {"c": {"value": str(amount)}}} for name, amount in amounts.items()
            ],
            "capacity": {"milli": {"value": "1000"}},
        }
        for index, amounts in enumerate(consumed)
    ]
    names = dict.fromkeys(name for amounts in consumed for name in amounts)
    made.add_node("n", devices, counters=[{"name": name, "counters": {"c": {"value": "1M"}}} for name in names])
    return made


def alone(number: int) -> dict[str, int]:
    return {f"s{number}": 1}


def chained(number: int) -> dict[str, int]:
    return {f"s{number}": 1, f"s{number + 1}": 1}


def ends_meet(number: int) -> dict[str, int]:
    """The second half of the devices links what the first half does not."""
    return {f"s{number}": 1, f"s{number // 2}": 1}


@pytest.mark.parametrize("consumes", [alone, chained, ends_meet])
def test_putting_devices_into_groups_is_linear_in_devices_and_counter_sets(consumes: Any) -> None:
    def grouping(count: int) -> int:
        states = linked(*map(consumes, range(count))).learner.free_states
        states.catch_up(UNLIMITED)
        return lines(lambda: states.at(0, UNLIMITED), 10**7, "placement")

    assert grouping(400) < 6 * grouping(100)


def test_devices_that_others_link_are_in_one_group() -> None:
    made = linked({"a": 1}, {"c": 1, "d": 1}, {"b": 1}, {"e": 1}, {"a": 1, "d": 1})
    states = made.learner.free_states
    states.catch_up(UNLIMITED)
    assert states.at(0, UNLIMITED).devices.whole == 3


@pytest.mark.parametrize(
    ("amounts", "chosen"),
    [
        (range(1, 151), "n"),
        (range(1, 401), ""),
        ([1] * 400, "n"),
    ],
    ids=["few", "many", "many that are alike"],
)
def test_so_many_devices_that_counters_link_are_compared_and_no_more(amounts: list[int], chosen: str) -> None:
    made, found = linked(*({"s": amount} for amount in amounts)), list[str]()

    def choose() -> None:
        found.append(made.placement.choose(made.pod("p"), [gpus()], made.names))

    assert lines(choose, 4 * LINES_PER_UNIT * TURN, "placement")
    assert found == [chosen]
    assert 150**2 <= PAIRS_OF_GROUP < 400**2
    assert made.plan(made.pod("p"), "n", gpus()).allocations
