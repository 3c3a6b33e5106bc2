"""No decision costs more than the units of work that it charges, in operations and in memory, whatever the claims are.

`make cost` draws larger scenarios for ten minutes.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_extender.allocation import selection
from dra_extender.allocation.allocator import Allocator, reply_to
from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.cache.equivalence import DeviceSignatures, node_reads
from dra_extender.allocation.plan import Failure
from dra_extender.allocation.proofs.bounds import Bounds
from dra_extender.allocation.proofs.demands import OpenRequest
from dra_extender.allocation.requests import (
    CONDITION_BYTES,
    DeviceFilter,
    Filters,
    prepare,
)
from dra_extender.allocation.scenario import Scenario
from dra_extender.allocation.selection import suitability
from dra_extender.allocation.signatures import reads_of
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask
from dra_extender.allocation.workerrequests import SearchReply, SearchRequest
from dra_extender.api.resource import MAX_NAMES
from dra_extender.cel import Work
from dra_extender.cel.library.network import Ip
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.limits import TOLERATIONS_OF_REQUEST
from tests.support.allocation.costs import LINES_PER_UNIT, QUESTIONS, cost
from tests.support.allocation.grammar import costly, expensive
from tests.support.allocation.scenarios import (
    DRIVER,
    ask,
    claim,
    device,
    first_available,
    request,
    resource_slice,
    scenario,
)
from tests.support.counting import calls, lines
from tests.support.examples import examples

TRIES = 300
"""Scenarios among which a planted defect is found."""


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(QUESTIONS)))
@settings(max_examples=examples(12))  # `make cost` draws for ten minutes
def test_a_decision_costs_no_more_than_it_is_charged_for(dice: Random, question: str) -> None:
    found = cost(expensive(dice, most_devices=128), QUESTIONS[question])
    assert found is None or found.excess <= 1, found


def excessive() -> bool:
    """Whether one of the first scenarios costs more than it is charged for."""
    scenarios = (expensive(Random(seed), most_devices=33) for seed in range(TRIES))
    costs = (cost(case, QUESTIONS["allocate"]) for case in scenarios)
    return any(found is not None and found.excess > 1 for found in costs)


def test_a_proof_that_makes_parts_of_combinations_of_constraints_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Bounds.narrow

    def combined(bounds: Bounds, state: SearchState, found: list[OpenRequest]) -> list[OpenRequest] | None:
        """Splits the devices by every combination of constraints, and keeps empty parts."""
        parts = [-1]
        for constraint in state.constraint_states:
            parts += [part & constraint.allowed for part in parts]
        return narrow(bounds, state, found)

    monkeypatch.setattr(Bounds, "narrow", combined)
    assert excessive()


def test_a_bound_that_charges_a_sixth_of_its_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    charged = Bounds._cost
    monkeypatch.setattr(Bounds, "_cost", lambda bounds, members: charged(bounds, members) // 6)
    assert excessive()


@pytest.mark.parametrize("seed", range(2))
def test_addresses_with_one_hash_and_answers_that_are_lost_are_found(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = scenario([resource_slice([device("d")])], [claim(request("r", 1, costly(Random(seed))))])
    assert (found := cost(case, QUESTIONS["allocate"])) and found.excess < 1
    monkeypatch.setattr(Ip, "identity", property(lambda ip: ip.address))
    monkeypatch.setattr(
        selection, "_suitability", lambda model, filter, budget: selection._evaluated(model, filter, budget, {})
    )
    assert (found := cost(case, QUESTIONS["allocate"])) and found.excess > 1


def test_comparing_taints_with_tolerations_is_charged() -> None:
    """Rules can add any number of taints to a device."""
    taints = [{"key": f"t{number}", "effect": "NoSchedule"} for number in range(500)]
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(15)] + [{"operator": "Exists"}]
    case = Scenario(
        scenario([resource_slice([device("d", taints=taints)])], [claim(request("r", tolerations=tolerations))])
    )
    prepared = prepare(case.claims, case.classes, case.features)
    assert not isinstance(prepared, Failure)
    view = node_view(case.node, case.slices, case.rules, case.features)
    (ask,), budget = prepared.requests[0].asks, WorkBudget()
    found = lines(lambda: suitability(view.devices[0].model, ask.filter, budget), 10**6, "allocation", "api")
    assert found > 10_000
    assert found <= LINES_PER_UNIT * budget.used


@pytest.mark.parametrize("release", ["1.36", "1.37"])
@pytest.mark.parametrize("capacities", [0, 1, 32])
def test_comparing_requested_capacity_is_charged(release: str, capacities: int) -> None:
    """Each of a pod's requests can ask for another amount."""
    policy = {"default": "8", "validRange": {"min": "1", "max": "999999", "step": "1"}}
    offered = {f"c{number}": {"value": "1000000", "requestPolicy": policy} for number in range(capacities)}
    wanted = {name: str(7 + number) for number, name in enumerate(offered)}
    content = {**device("d", allowMultipleAllocations=True), "capacity": offered}
    asking = [claim(request("r", capacity={"requests": wanted}))]
    case = Scenario({**scenario([resource_slice([content])], asking), "release": release})
    prepared = prepare(case.claims, case.classes, case.features)
    assert not isinstance(prepared, Failure)
    view = node_view(case.node, case.slices, case.rules, case.features)
    (ask,), budget = prepared.requests[0].asks, WorkBudget()
    suitability(view.devices[0].model, ask.filter)
    view.devices[0].model.memo.clear()
    ask.filter.answers.clear()
    found = lines(lambda: suitability(view.devices[0].model, ask.filter, budget), 10**6, "allocation", "api")
    assert found <= LINES_PER_UNIT * budget.used


def test_making_tolerations_and_requested_capacity_ready_is_charged() -> None:
    def units(**fields: Any) -> int:
        case = Scenario(scenario([], [claim(first_available("r", ask(), ask(**fields)))]))
        spent: list[int] = []
        assert not isinstance(prepare(case.claims, case.classes, case.features, spend=spent.append), Failure)
        return sum(spent)

    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(TOLERATIONS_OF_REQUEST)]
    capacity = {"requests": {f"c{number}": "1" for number in range(MAX_NAMES)}}
    assert units(tolerations=tolerations) - units() == TOLERATIONS_OF_REQUEST
    assert units(capacity=capacity) - units() == MAX_NAMES


def test_looking_up_the_answers_of_many_filters_is_charged() -> None:
    """256 filters whose answers are known by signature: 8 turns of 10,000 units took 0.2 s each."""
    asked = claim(*(first_available(f"r{r}", *(ask(1, f"{r * 8 + a} >= 0") for a in range(8))) for r in range(8)))
    case = Scenario(scenario([resource_slice([device(f"d{i}", {"index": i}) for i in range(8)])], [asked]))
    prepared = prepare(case.claims, case.classes, case.features)
    assert not isinstance(prepared, Failure)
    reads = node_reads(prepared)
    reads_of(reads.filters, ())
    signatures, budget = DeviceSignatures(reads), WorkBudget()
    first, *others = (each.model for each in node_view(case.node, case.slices, case.rules, case.features).devices)
    signatures.of(first)
    found = lines(lambda: [signatures.of(each, budget) for each in others], 10**6, "allocation", "allocation/cache")
    assert found <= LINES_PER_UNIT * budget.used


def test_what_selectors_read_is_asked_once_for_each_filter() -> None:
    """Each turn of a call asks for it again: 115,000 selectors took 0.3 s, which cost nothing."""
    selectors = [{"cel": {"expression": f"{number} >= 0"}} for number in range(20)]
    asked = claim(*(request(f"r{r}", selectors=selectors[r:]) for r in range(10)))
    case = Scenario(scenario([resource_slice([device("d")])], [asked]))
    prepared = prepare(case.claims, case.classes, case.features)
    assert not isinstance(prepared, Failure)
    filters = node_reads(prepared).filters
    first = reads_of(filters, ())
    assert len(filters) == 10
    assert calls(lambda: reads_of(filters, ())) < 20 * len(filters)
    assert reads_of(filters, ()) == first == frozenset()


def test_claims_without_requests_are_charged_on_each_node() -> None:
    """1,023 of them with 32 configurations each took 5 ms for a node, which cost nothing."""
    opaque = {"opaque": {"driver": DRIVER, "parameters": {}}}
    asked = [claim(request("r")), *(claim(name=f"c{number}", config=[opaque] * 32) for number in range(200))]
    case = Scenario(scenario([resource_slice([device("d")])], asked))
    spent: list[int] = []
    prepared = prepare(case.claims, case.classes, case.features, spend=spent.append)
    assert not isinstance(prepared, Failure)
    assert sum(spent) > len(asked)
    view = node_view(case.node, case.slices, case.rules, case.features)
    allocator, found, reply = Allocator(share_ids=str), WorkBudget(), WorkBudget()
    request_of_node = SearchRequest(prepared, view, {})
    searched, answer = Work(100_000), reply_to(request_of_node)
    assert isinstance(answer, SearchReply)
    decisions = {
        "found": lambda: allocator.allocate(prepared, view, NodeHoldings(view, {}), found, searched),
        "replied": lambda: allocator.replay(prepared, view, answer, reply),
    }
    run = {name: lines(decide, 10**6, "allocation") for name, decide in decisions.items()}
    assert run["found"] <= LINES_PER_UNIT * (found.used + 100_000 - searched.left)
    assert run["replied"] <= LINES_PER_UNIT * reply.used


def test_names_of_constraints_that_no_device_has_are_not_remembered_for_each_device_and_node() -> None:
    """Claims may have any names: 1,500 nodes of 8 devices took 58 MB for each pod."""
    names = [{"distinctAttribute": f"{DRIVER}/x{number}"} for number in range(MAX_NAMES)]
    case = Scenario(
        scenario([resource_slice([device(f"d{i}") for i in range(8)])], [claim(request("r"), constraints=names)])
    )
    prepared = prepare(case.claims, case.classes, case.features)
    assert not isinstance(prepared, Failure)
    view = node_view(case.node, case.slices, case.rules, case.features)
    AllocationTask(prepared, view, NodeHoldings(view, {}))
    assert sum(len(each.memo) for each in (view, *{device.model for device in view.devices})) < MAX_NAMES // 4


def test_filters_that_nobody_uses_keep_a_limited_number_of_tolerations_and_amounts() -> None:
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(TOLERATIONS_OF_REQUEST)]
    capacity = {"requests": {f"c{number}": "1" for number in range(MAX_NAMES)}}
    filters, kept = Filters(2**16), list[DeviceFilter]()
    for number in range(8):
        asked = request("r", 1, f"{number} > 0", tolerations=tolerations, capacity=capacity)
        case = Scenario(scenario([], [claim(asked)]))
        prepared = prepare(case.claims, case.classes, case.features, filters)
        assert not isinstance(prepared, Failure)
        kept.append(prepared.requests[0].asks[0].filter)
    conditions = TOLERATIONS_OF_REQUEST + MAX_NAMES
    assert all(filter.size >= conditions * CONDITION_BYTES for filter in kept)
    assert len(filters._recent) == 1
