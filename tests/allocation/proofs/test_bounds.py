"""All proofs together, and each of them alone: shapes on which a search without them explodes."""

from __future__ import annotations

from typing import Any

import pytest

from bench.ablation import SEARCH, baseline, count, left_out, load
from dra_extender.allocation.plan import STEP_BUDGET
from dra_extender.allocation.proofs.bounds import ALL, Proof
from dra_extender.allocation.scenario import Scenario
from tests.support.allocation.families import (
    DECIDED_BY,
    PERFECT,
    alternatives,
    cards,
    knapsacks,
    shares,
    slots,
    together,
    together_beside,
    triangles,
)
from tests.support.allocation.scenarios import A, answer, claim, devices, request, resource_slice, scenario

Json = dict[str, Any]

ONE_CARD = [request(f"p{size}", 1, f"{A}.slots == {size} && {A}.card == 0") for size in (1, 4)]
LAST_NEEDS_FIRST = claim(*(request(f"r{i}", 2) for i in range(9)), request("z", 2, f"{A}.index < 2"))


@pytest.mark.parametrize(
    ("case", "kind", "steps"),
    [
        (shares(6, *PERFECT), "allocated", 600),
        (shares(5, *[5] * 4, *[51] * 6), "unschedulable", 100),
        (shares(4, *[5] * 4, *[34] * 9), "unschedulable", 400),
        (shares(4, *sorted(PERFECT)[-12:], 90, 90, exclusive=2), "unschedulable", 200),
        (cards(8, [slots(f"q{i}", 1) for i in range(12)] + ONE_CARD), "unschedulable", 5),
        (cards(6, [slots(f"q{i}", 1) for i in range(5)] + [slots("full", 4, 5)]), "unschedulable", 5),
        (cards(6, [slots(f"q{i}", 1) for i in range(4)] + [slots("full", 4, 5)]), "allocated", 300),
        (cards(5, [slots(f"q{i}", 1) for i in range(2)] + [slots("half", 2, 9)]), "allocated", 300),
        (knapsacks(1, 8), "allocated", 100),
        (together(2, 12, 7, 7, 7), "unschedulable", 20),
        (together(3, 9, 1, 1, 2, 2, 3, 4, 5, 9), "allocated", 400),
        (together_beside(6, 8, 5, 4), "unschedulable", 20),
        (triangles(5, 5), "allocated", 400),
        (triangles(5, 6), "unschedulable", 20),
        (scenario([resource_slice(devices(20))], [LAST_NEEDS_FIRST]), "allocated", 200),
        (alternatives(4, 2, 1, requests=10, total=9), "unschedulable", 5),
    ],
    ids=lambda value: value["claims"][0]["metadata"]["name"] if isinstance(value, dict) else str(value),
)  # fmt: skip
def test_little_work_is_done_on_shapes_that_explode(case: Json, kind: str, steps: int) -> None:
    found = answer(case)
    assert (found["kind"], found["error"] or "-")[0] == kind
    assert found["steps"] <= steps


def test_every_proof_has_a_family_that_needs_it() -> None:
    assert set(DECIDED_BY) == set(Proof)


@pytest.mark.parametrize("proof", Proof, ids=lambda proof: proof.value)
def test_a_family_is_decided_with_its_proof_and_undecided_without(proof: Proof) -> None:
    family = Scenario(DECIDED_BY[proof])
    found, without = count(family, ALL), count(family, ALL - {proof})
    assert found.decided
    assert found.steps < STEP_BUDGET / 20
    assert not without.decided


def test_the_documented_steps_of_hard_searches_are_those_of_the_code() -> None:
    """After a change of the search: `make bench-ablation`."""
    assert baseline(load("hard")) in SEARCH.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("proof", Proof, ids=lambda proof: proof.value)
def test_the_documented_saving_of_a_proof_is_that_of_the_code(proof: Proof) -> None:
    """After a change of the search: `make bench-ablation`."""
    assert left_out(load("hard"), proof) in SEARCH.read_text().splitlines()
