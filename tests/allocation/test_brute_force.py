"""The search against an independent enumeration of everything in the documented order, and what must not matter."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.plan import Failure, Plan, Unfit, undecided
from dra_extender.allocation.proofs.bounds import Bounds, Proof
from dra_extender.allocation.requests import prepare
from dra_extender.allocation.scenario import Scenario, decide
from dra_extender.allocation.search import Search, SearchOutcome
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask, FatalError
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.usage import holdings_of
from tests.support.allocation.enumeration import enumerate_first
from tests.support.allocation.scenarios import NODE, allocated, claim, device, device_class, outcome, resource_slice
from tests.support.allocation.strategies import scenarios
from tests.support.examples import examples

Json = dict[str, Any]
STEPS = 5000
"""Enough for nearly all of these scenarios without any proof."""


def task_of(case: Json) -> AllocationTask | None:
    """The task of a scenario; None when it fails before the search."""
    parts = Scenario(case)
    prepared = prepare(parts.claims, parts.classes, parts.features)
    assert not isinstance(prepared, Failure)
    view = node_view(parts.node, parts.slices, parts.rules, parts.features)
    try:
        return AllocationTask(prepared, view, NodeHoldings(view, holdings_of(parts.allocated, parts.features)))
    except FatalError:
        return None


def snapshot(state: SearchState) -> tuple[Any, ...]:
    return (
        state.taken_mask, tuple(state.taken_by_claim), tuple(state.counts), tuple(state.left),
        tuple(state.constraint_states), state.charged, len(state.taken),
        {device: dict(amounts) for device, amounts in state.consumed.items()},
    )  # fmt: skip


def kind_or_devices(case: Json) -> Any:
    found = outcome(case)
    return "error" if isinstance(found, str) and found.startswith("error") else found


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(scenarios())
def test_the_first_solution_in_the_documented_order_is_found(case: Json) -> None:
    assert kind_or_devices(case) == enumerate_first(case)


@settings(max_examples=examples(50))
@given(scenarios())
def test_a_search_that_finds_nothing_leaves_no_trace(case: Json) -> None:
    task = task_of(case)
    if task is None:
        return
    search = Search(task, 50_000, Bounds(task))
    before = snapshot(search.state)
    try:
        result = search.run()
    except FatalError:
        return
    if result is SearchOutcome.NONE:
        assert snapshot(search.state) == before
    else:
        assert result is SearchOutcome.FOUND
        while search.state.taken:
            search.state.give_back()
        assert snapshot(search.state) == before


@settings(max_examples=examples(50))
@given(scenarios(), st.sets(st.sampled_from(Proof)))
def test_every_choice_of_proofs_leads_to_the_same_answer(case: Json, proofs: set[Proof]) -> None:
    def answered(allocator: Allocator) -> Plan | Unfit | Failure:
        return msgspec.structs.replace(decide(Scenario(case), allocator), steps=0)

    found = answered(Allocator(step_budget=STEPS, share_ids=str, proofs=proofs))
    if found != Unfit(undecided(STEPS), 0):
        assert found == answered(Allocator(share_ids=str))


@settings(max_examples=examples(50))
@given(scenarios())
def test_a_decision_changes_none_of_its_inputs_and_repeats(case: Json) -> None:
    parts = Scenario(case)
    prepared = prepare(parts.claims, parts.classes, parts.features)
    assert not isinstance(prepared, Failure)
    view = node_view(parts.node, parts.slices, parts.rules, parts.features)
    holdings = NodeHoldings(view, holdings_of(parts.allocated, parts.features))
    counters = {pool: {name: dict(left) for name, left in sets.items()} for pool, sets in holdings.counters.items()}
    before = holdings.owned, {bit: dict(amounts) for bit, amounts in holdings.shared.items()}, counters
    allocator = Allocator(share_ids=lambda: "share")
    first = allocator.allocate(prepared, view, holdings)
    assert (holdings.owned, holdings.shared, holdings.counters) == before
    assert allocator.allocate(prepared, view, holdings) == first


@settings(max_examples=examples(50))
@given(scenarios(), st.randoms(use_true_random=False))
def test_the_order_of_unrelated_objects_changes_nothing(case: Json, random: Random) -> None:
    expected = kind_or_devices(case)
    shuffled = copy.deepcopy(case)
    shuffled["slices"].append(resource_slice([device("far")], name="zz", pool="far", where={"nodeName": "node-2"}))
    shuffled["slices"].append(resource_slice([device("old")], name="aa", pool="pool", generation=0, count=1))
    shuffled["classes"].append(device_class("other", "false"))
    shuffled["allocatedClaims"].append(allocated({"device": "far", "pool": "far"}, name="far"))
    for objects in (shuffled["slices"], shuffled["classes"], shuffled["allocatedClaims"]):
        random.shuffle(objects)
    assert kind_or_devices(shuffled) == expected


@settings(max_examples=examples(50))
@given(scenarios())
def test_renaming_devices_in_the_same_order_keeps_the_verdict(case: Json) -> None:
    expected = kind_or_devices(case)
    renamed = json.loads(json.dumps(case).replace("dev-", "card-x-"))
    found = kind_or_devices(renamed)
    assert json.loads(json.dumps(found).replace("card-x-", "dev-")) == expected


def test_an_empty_list_of_claims_always_fits() -> None:
    assert outcome({"claims": [], "node": {"metadata": {"name": NODE}}}) == []
    assert outcome({"claims": [claim()], "node": {"metadata": {"name": NODE}}}) == [[]]
