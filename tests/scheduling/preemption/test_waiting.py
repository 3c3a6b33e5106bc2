"""Nobody is evicted for want of a worker's answer."""

from __future__ import annotations

from dra_extender.allocation.budget import TurnBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.preemption.terms import NoPreemption, Preemption
from tests.support.allocation.heavy import LOOPS
from tests.support.scheduling.preempting import Situation, Told

CEILING = 2_000


def selecting(expression: str) -> Told:
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    return {"requests": [{"name": "r", "exactly": {**exactly, "selectors": [{"cel": {"expression": expression}}]}}]}


def found(told: Told, *, allowance: int = 1_000_000, last: bool = False) -> tuple[Preemption | NoPreemption, int]:
    """The answer, and how many questions workers are asked."""
    budget = TurnBudget(WorkerReplies(), allowance=allowance, ceiling=CEILING, last=last)
    return Situation(told).found(budget), len(budget.call.requests)


LOW: Told = {"nodes": {"n1": 1}, "pods": {"low": {"priority": 1, "node": "n1", "has": ["d0"]}}}


def test_while_a_selector_is_being_evaluated_it_is_not_known_whom_to_evict() -> None:
    answer, asked = found({**LOW, "preemptor": {"wants": [selecting(LOOPS)]}})
    assert isinstance(answer, NoPreemption)
    assert (answer.why, asked) == ("unknown", 1)


def test_what_is_not_decided_in_the_last_turn_is_not_known() -> None:
    answer, _ = found({**LOW, "preemptor": {"wants": 1}}, allowance=1, last=True)
    assert isinstance(answer, NoPreemption)
    assert answer.why == "unknown"
    answer, _ = found({**LOW, "preemptor": {"wants": 1}}, last=True)
    assert isinstance(answer, Preemption)
