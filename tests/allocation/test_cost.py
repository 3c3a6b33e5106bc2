"""No decision costs more than the units of work that it charges, in operations and in memory, whatever the claims are.

`make cost` draws larger scenarios for ten minutes.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_extender.allocation.proofs.bounds import Bounds
from dra_extender.allocation.proofs.demands import Demand
from dra_extender.allocation.state import SearchState
from tests.support.allocation.costs import QUESTIONS, cost
from tests.support.allocation.grammar import expensive

TRIES = 300
"""Scenarios among which a planted defect is found."""


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(QUESTIONS)))
@settings(max_examples=25)
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

    def combined(bounds: Bounds, state: SearchState, found: list[Demand]) -> list[Demand] | None:
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
