"""The turns of one call: what one turn has found, later ones do not look for again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from dra_extender.allocation.budget import CallState, TurnBudget, TurnSpent
from dra_extender.allocation.cache import equivalence
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.plan import Plan
from dra_extender.allocation.requests import REMEMBERED_BYTES
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.resource import ResourceClaim
from tests.support.allocation.costs import LINES, LINES_PER_UNIT_OF_CEL
from tests.support.allocation.heavy import selecting
from tests.support.allocation.manynodes import World, attributes, exactly, selector, wanted
from tests.support.counting import lines

T = TypeVar("T")

ALLOWANCE = 3_000
CEILING = 20_000
MOST_TURNS = 100
SERIAL = "device.attributes['gpu'].serial"


def world_of(devices: int, world: World | None = None) -> World:
    """One node, whose devices are all different."""
    world = world or World()
    world.put_class("gpu")
    world.add_node(*({"attributes": {"serial": {"string": f"{number}"}}} for number in range(devices)))
    return world


def in_turns(world: World, decide: Callable[[Decisions], T]) -> tuple[T, list[int]]:
    """The decision, and the units of work of each turn."""
    replies, call, turns, found = WorkerReplies(), CallState(), list[int](), list[T]()
    while not found:
        assert len(turns) < MOST_TURNS, "no end in sight"
        budget = TurnBudget(replies, allowance=ALLOWANCE, ceiling=CEILING, call=call)
        with suppress(TurnSpent):
            found.append(decide(world.decisions.with_budget(budget)))
        turns.append(budget.used)
    return found[0], turns


def rounds(number: int) -> str:
    """True, after this many rounds; each costs three units."""
    return f"lists.range({number}).all(x, x >= 0)"


@pytest.mark.parametrize("selectors", [1, 3, 32])
def test_a_selector_that_takes_more_than_a_turn_is_evaluated_once(selectors: int) -> None:
    """Its answer was lost when the turn ended, so no turn was the last one."""
    claim = selecting("c", *(rounds(3_500 + number) for number in range(selectors)))
    found, turns = in_turns(world_of(1), lambda decisions: decisions.node_results([claim], ["n0"]))
    assert found.fits == ["n0"]
    assert len(turns) <= selectors + 3
    assert sum(turns) < 12_500 * selectors


def test_a_derived_attribute_that_takes_more_than_a_turn_is_evaluated_once() -> None:
    derived = [{"name": "gpu/side", "expression": f"{SERIAL} != '' && {rounds(3_500)} ? 1 : 2"}]
    claim = wanted(exactly(4, derivedAttributes=derived), constraints=[{"matchAttribute": "gpu/side"}])
    world = world_of(4, World("DRADerivedAttributes=true", "1.37"))
    found, turns = in_turns(world, lambda decisions: decisions.node_results([claim], ["n0"]))
    assert found.fits == ["n0"]
    assert sum(turns) < 4 * 12_500


def test_the_clauses_of_a_tally_are_evaluated_once() -> None:
    """Every turn evaluated them for all devices again: 128 devices were never counted."""
    claim = selecting("c", f"{SERIAL} == 'x' && {rounds(40)}")
    found, turns = in_turns(world_of(128), lambda decisions: decisions.tally([claim], "n0"))
    assert [clause.excluded for clause in found.requests[0].clauses] == [128]
    assert sum(turns) < 1.5 * 128 * (3 * 40 + 10)


def several(requests: int) -> list[Any]:
    """Requests whose selectors differ."""
    return [exactly(name=f"r{number}", **selector(f"{SERIAL} != 'x{number}'")) for number in range(requests)]


def is_last_turn_short(world: World, claim: ResourceClaim) -> bool:
    """Whether a turn that leaves something undecided runs no more lines than it is charged for."""
    budget = TurnBudget(WorkerReplies(), allowance=300, ceiling=CEILING, last=True)
    decisions = world.decisions.with_budget(budget)
    found = lines(lambda: decisions.node_results([claim], ["n0"]), 1_000_000, "allocation")
    assert budget.unfinished
    return found < LINES_PER_UNIT_OF_CEL * budget.used + LINES


@pytest.mark.parametrize("remembered", [0, REMEMBERED_BYTES], ids=["many filters", "few filters"])
def test_the_last_turn_of_a_call_ends_when_it_is_spent(remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went through all filters and devices without a charge: six seconds for 3,584 alternatives and 128 devices."""
    monkeypatch.setattr(equivalence, "REMEMBERED_BYTES", remembered)
    world, claim = world_of(512), wanted(*several(32))
    world.decisions.alike([claim], ["n0"])  # knows what the selectors read
    assert is_last_turn_short(world, claim)


def test_the_last_turn_of_a_call_does_not_look_for_what_selectors_read_when_it_is_spent() -> None:
    world = world_of(1)
    expressions = ([f"{request * 64 + number} >= 0" for number in range(64)] for request in range(32))
    selectors = ([{"cel": {"expression": expression}} for expression in each] for each in expressions)
    claim = wanted(*(exactly(name=f"r{number}", selectors=each) for number, each in enumerate(selectors)))
    world.decisions.plan([claim], "n0")  # has made the claim ready
    assert is_last_turn_short(world, claim)


def fabric(devices: int) -> World:
    """Two nodes that see the same devices, which are all different."""
    world = world_of(0, world_of(0))
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": f"d{number}", **attributes(serial=f"{number}")} for number in range(devices)]
    world.put_slice("fabric", {"driver": "gpu", "pool": pool, "allNodes": True, "devices": listed})
    return world


def test_selectors_of_a_claim_for_several_nodes_are_charged() -> None:
    """They were evaluated in one turn when the devices had forgotten the answers."""
    claim = selecting("c", f"{SERIAL} == 'x' || {rounds(1_000)}")
    found, turns = in_turns(fabric(8), lambda decisions: decisions.plan_together([claim], [["n0", "n1"]]))
    assert isinstance(found, Plan)
    assert sum(turns) > 8 * 3_000
    assert max(turns) < 2 * ALLOWANCE


def test_claims_for_several_nodes_with_more_filters_and_devices_than_a_turn_reads_are_decided() -> None:
    claim = wanted(*several(10))
    world = fabric(2 * ALLOWANCE // 10)
    found, _ = in_turns(world, lambda decisions: decisions.plan_together([claim], [["n0", "n1"]]))
    assert isinstance(found, Plan)
