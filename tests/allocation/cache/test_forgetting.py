"""What is remembered of devices goes with them."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest

from dra_extender.allocation import decisions
from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.cache import equivalence
from dra_extender.allocation.cache.equivalence import DeviceSignatures
from dra_extender.api.resource import ResourceClaim
from tests.support.allocation.manynodes import World, attributes, exactly, nodes, selector, wanted
from tests.support.counting import calls

MODEL_X = selector('device.attributes["gpu"].model == "x"')


def test_what_was_derived_of_a_pool_goes_with_it() -> None:
    world = nodes([attributes(model="x")])
    gone = world.add_node(attributes(model="y", serial="s"), attributes(model="x", serial="t"))
    for claim in (wanted(exactly(1, **MODEL_X)), wanted(exactly())):
        world.ask(claim)
    seen = world.cluster.inventory.nodes.seen[gone]
    (pool,) = seen.pools
    assert pool.pool is not None
    left: list[ref[Any]] = [ref(pool), *map(ref, pool.pool.models)]
    del seen, pool
    world.withdraw(gone)
    world.ask(wanted(exactly()))
    assert [found for one in left if (found := one()) is not None] == []


def test_a_forgotten_device_signature_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "REMEMBERED", 1)
    world = World()
    for serials in ("aa", "bc", "dd"):
        world.add_node(*(attributes(serial=serial) for serial in serials))
    same = {"matchAttribute": "gpu/serial"}
    assert world.ask(wanted(exactly(2), constraints=[same])) == ("n0 n2", "n1")


def test_results_of_many_claims_on_many_nodes_are_forgotten_by_what_they_keep_of_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Constraints with free names made each claim keep something of every node: eleven pods filled 2 GiB."""
    monkeypatch.setattr(decisions, "REMEMBERED_BYTES", 200_000)
    world = nodes(*([attributes(serial=f"s{number}")] for number in range(50)))
    for number in range(20):
        for devices in (1, 2, 3, 4):
            world.ask(wanted(exactly(devices, **selector(f'device.attributes["gpu"].serial != "{number}"'))))
    gc.collect()
    kept = [found for found in gc.get_objects() if isinstance(found, DeviceSignatures)]
    assert 0 < sum(map(len, kept)) <= 200 + 50, "a kilobyte each, and the last claim"


def test_claims_that_share_what_they_keep_of_nodes_do_not_displace_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of eight kinds of claims were counted eight times: four kinds were left, and all searched again."""
    monkeypatch.setattr(decisions, "REMEMBERED_BYTES", 200_000)
    world = nodes(*([attributes(serial=f"{number}-{device}") for device in range(8)] for number in range(10)))
    claims = [wanted(exactly(number + 1)) for number in range(8)]
    monkeypatch.setattr(equivalence, "ENTRY_BYTES", 10_000)
    for claim in (*claims, *claims):
        world.ask(claim)
    before = world.decisions.searches
    for claim in claims:
        world.ask(claim)
    assert world.decisions.searches == before


def test_going_from_claims_to_others_costs_the_same_however_many_are_remembered() -> None:
    world = nodes([attributes(serial="s")])
    claims = [differing(number) for number in range(100)]

    def again() -> None:
        for claim in claims[:2]:
            world.ask(claim)

    costs = []
    for count in (2, 100):
        for claim in claims[:count]:
            world.ask(claim)
        again()
        costs.append(calls(again))
    assert costs[1] == costs[0]


def test_to_forget_the_results_of_other_claims_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "REMEMBERED_CLAIMS", 40)
    world, used = nodes([attributes(serial="s")]), list[int]()
    for number in range(60):
        budget = WorkBudget()
        world.decisions.with_budget(budget).node_results([differing(number)], world.names)
        used.append(budget.used)
    assert used[30] == used[20]
    assert used[50] - used[20] >= 40


def differing(number: int) -> ResourceClaim:
    """Claims whose selectors differ."""
    return wanted(exactly(1, **selector(f'device.attributes["gpu"].serial != "{number:03}"')))
