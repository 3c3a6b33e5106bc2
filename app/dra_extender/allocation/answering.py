"""How a worker answers: the same code that decides on the event loop, without a limit of its own."""

from __future__ import annotations

from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.budget import UNLIMITED, evaluated
from dra_extender.allocation.plan import STEP_BUDGET, Unfit
from dra_extender.allocation.questions import (
    Answer,
    Compiled,
    CompileQuestion,
    Evaluated,
    EvaluateQuestion,
    Question,
    Searched,
    SearchQuestion,
)
from dra_extender.allocation.task import Failed
from dra_extender.cel import CelCompileError, compile_selector


def answer(question: Question, step_budget: int = STEP_BUDGET) -> Answer:
    """What the question comes to. Never raises for what it contains."""
    if isinstance(question, CompileQuestion):
        return _compiled(question)
    if isinstance(question, EvaluateQuestion):
        return _evaluated(question)
    return _searched(question, step_budget)


def _compiled(question: CompileQuestion) -> Compiled:
    try:
        return Compiled(compile_selector(question.expression, question.gates).reads)
    except CelCompileError as error:
        return Compiled(problem=f"CEL compile error: {error}")


def _evaluated(question: EvaluateQuestion) -> Evaluated:
    found = evaluated(compile_selector(question.expression, question.gates), question.view)
    return Evaluated(False, found) if isinstance(found, str) else Evaluated(found)


def _searched(question: SearchQuestion, step_budget: int) -> Searched:
    allocator = Allocator(share_ids=str, step_budget=step_budget)
    try:
        found = allocator.find(question.prepared, question.view, question.holdings, UNLIMITED, None)
    except Failed as failure:
        return Searched(0, error=failure.problem, claim=failure.claim)
    if isinstance(found, Unfit):
        return Searched(found.steps, reason=found.reason)
    options = found.task.options
    taken = tuple(
        (item.option.request, options[item.option.request].index(item.option), item.device)
        for item in found.state.taken
    )
    return Searched(found.steps, taken)
