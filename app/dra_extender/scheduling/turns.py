"""Bounded work on the event loop: long computations run in turns, and between two turns other tasks run.

A computation is a generator (`Turns`) that yields after each turn. `run` executes it on the event loop, `run_at_once`
in a command. `in_turns` makes a computation of a decision: every turn runs the decision with a new work budget, until
one budget suffices. The results of a turn are memoised, so the next turn gets further. docs/decisions/bounded-work.md
shows how this and `deferred` fit together.

Promises: `run` and `run_at_once` return in the turn that ended the computation, with no await in between, so a result
belongs to the state at that moment. A question (`QueryBudget`) makes at most `TRIALS` hypothetical decisions and
charges at most `WORK` units of work (about a microsecond each); beyond that `complete` is False and the answer has what
was found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, TypeVar

from dra_extender.allocation.budget import CallState, Deferred, TurnBudget, TurnSpent, WorkBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.view import View

T = TypeVar("T")
B = TypeVar("B", bound=WorkBudget)
Turns = Generator[None, None, T]
"""A computation that yields after each turn and returns its result."""

TURN_WORK: Final = 5_000
"""Units of work in one turn of a question."""
PORTION: Final = 250
"""Nodes decided on in one turn of a question."""
UNDECIDED: Final = "not decided yet whether devices fit"
"""The reason of a node on which a question has not decided."""
TRIALS: Final = 400
WORK: Final = 2_000_000


async def run(turns: Turns[T], between: Callable[[], object] | None = None) -> T:
    """The result. The event loop runs other tasks between two turns; `between` is called first."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: T = end.value
            return result
        if between is not None:
            between()
        await asyncio.sleep(0)


def run_at_once(turns: Turns[T]) -> T:
    """The result, for callers without an event loop."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: T = end.value
            return result


def in_turns(budgets: Iterable[B], decide: Callable[[B], T]) -> Turns[T]:
    """The result of the first turn whose budget suffices. Raises Deferred. `budgets` is endless."""
    for budget in budgets:
        try:
            return decide(budget)
        except TurnSpent:
            yield
    raise ValueError("out of budgets")


def turn_budgets(replies: WorkerReplies, config: SchedulingConfig, call: CallState, most: int) -> Iterator[TurnBudget]:
    """The budgets of one call, turn by turn. The last one reaches `most` units of work."""
    used = 0
    while True:
        left, turn = most - used, config.turn_work
        budget = TurnBudget(replies, allowance=turn, ceiling=config.question_work, last=left <= turn, call=call)
        yield budget
        used += budget.used


def query_budgets(replies: WorkerReplies, config: SchedulingConfig, *, limited: bool = True) -> Iterator[WorkBudget]:
    """The budgets of one question, turn by turn. A question reads the replies of workers, and never defers work to
    them: from `call_work` on, what a turn does not decide is Deferred. Not `limited`: one turn suffices for everything.
    """
    while not limited:
        yield WorkBudget()
    yield from turn_budgets(replies, config, CallState(), config.call_work)


class QueryBudget:
    """The budget of one question. `trials`: hypothetical decisions made. `work`: units charged."""

    def __init__(self, view: View) -> None:
        self.trials = 0
        self.work = 0
        self.complete = True
        """False when the budget ended before the question was answered completely."""
        self._view = view
        self._budgets = view.budgets()
        self._turn_work = 0

    def charge(self, units: int) -> Turns[None]:
        """Charge work that is done, or known to be small, and yield when the turn is over."""
        self.work += units
        self._turn_work += units
        if self._turn_work >= TURN_WORK:
            self._turn_work = 0
            yield

    def spent(self) -> bool:
        """True when the budget allows no further trial. `complete` is then False."""
        if self.trials >= TRIALS or self.work >= WORK:
            self.complete = False
            return True
        return False

    def turn(self, decide: Callable[[View], T]) -> Turns[T | None]:
        """The decision in turns; None when a worker has to answer first."""
        used = 0
        found: T | None = None

        def decided(budget: WorkBudget) -> T:
            nonlocal used
            try:
                return decide(self._view.with_budget(budget))
            finally:
                used += budget.used

        try:
            found = yield from in_turns(self._budgets, decided)
        except Deferred:
            self.complete = False
        yield from self.charge(used)
        return found
