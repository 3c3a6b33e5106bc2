"""The turns of one call: what one turn has found, later ones do not look for again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from dra_extender.allocation.budget import CallState, TurnBudget, TurnSpent
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.workerrequests import WorkerReplies
from tests.support.allocation.heavy import selecting
from tests.support.allocation.manynodes import World, exactly, wanted

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
