"""The counters of a view, with as many amounts as devices: time and memory are linear in the devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.allocation.counters import CounterLayout
from dra_extender.allocation.proofs.bounds import CounterBudgets
from dra_extender.allocation.requests import prepare
from dra_extender.allocation.scenario import Scenario
from dra_extender.allocation.task import AllocationTask
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView
from tests.support.allocation.scenarios import claim, device, request, resource_slice, scenario
from tests.support.counting import memory

COUNT = 300


class Amount(int):
    """All have one hash, as multiples of 2^61 - 1 have. `compared` counts comparisons."""

    compared = 0

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        Amount.compared += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        Amount.compared += 1
        return int(self) < other

    def __radd__(self, other: int) -> Amount:
        return Amount(other + int(self))


@pytest.fixture(autouse=True)
def from_zero() -> Iterator[None]:
    Amount.compared = 0
    yield
    Amount.compared = 0


def unequal(count: int) -> Scenario:
    """Devices no two of which consume the same amount of the counter, and a claim for one."""
    content = [device(f"d{number}", counters={"s": {"c": f"{1 + number}n"}}) for number in range(count)]
    counters = resource_slice(name="counters", count=2, counters={"s": {"c": f"{count // 2}n"}})
    slices = [resource_slice(content, count=2), counters]
    return Scenario(scenario(slices, [claim(request("r"))]))


def seen(found: Scenario) -> NodeView:
    return node_view(found.node, found.slices, found.rules, found.features)


def colliding(view: NodeView) -> NodeView:
    def model(known: DeviceModel) -> DeviceModel:
        consumes = tuple((name, counter, Amount(amount)) for name, counter, amount in known.traits.consumes)
        made = DeviceModel(known.traits)
        made.traits = replace(known.traits, consumes=consumes)
        return made

    return NodeView(view.node, [replace(pool, models=tuple(map(model, pool.models))) for pool in view.pools])


def test_amounts_that_have_one_hash_are_compared_no_more_often_than_to_sort_them() -> None:
    found = unequal(COUNT)
    prepared: Any = prepare(found.claims, found.classes, found.features)
    view = colliding(seen(found))
    task = AllocationTask(prepared, view, NodeHoldings(view, {}))
    assert 0 < Amount.compared < 20 * COUNT
    Amount.compared = 0
    assert task.counters is not None
    CounterBudgets(task, task.counters)
    assert 0 < Amount.compared < 20 * COUNT


def test_the_memory_that_counters_take_is_linear_in_the_devices() -> None:
    def used(count: int) -> int:
        view = seen(unequal(count))

        def ask() -> None:
            layout = CounterLayout(view)
            for left in range(0, count, 2):
                layout.dry([left], lambda units: None)

        return memory(ask)

    assert used(4_000) < 6 * used(1_000)


def test_devices_whose_counters_do_not_suffice_are_collected_once_and_charged() -> None:
    layout, charged = CounterLayout(seen(unequal(COUNT))), list[int]()
    for _ in range(3):
        for left in range(0, COUNT, COUNT // 3):
            assert layout.dry([left], charged.append) == (1 << COUNT) - (1 << left)
    assert charged == [COUNT // 4, COUNT // 6, COUNT // 12]
