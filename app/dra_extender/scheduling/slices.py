"""How much of a long question is answered at a time, and altogether: counted while it is done.

Promises: between two steps of a question the event loop is free. A step ends after `STEP` units of work (about a
microsecond each), or with the turn of a budget. `TRIALS` hypothetical decisions and `WORK` units are made at most,
whatever claims, pods and clusters contain: then `complete` is False, and what was found until then is told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar, overload

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.scheduling.view import View

T = TypeVar("T")
Steps = Generator[None, None, T]
"""What is done a step at a time, with a result at the end."""

STEP: Final = 5_000
PORTION: Final = 250
"""Nodes that are asked about in one turn."""
TRIALS: Final = 400
WORK: Final = 2_000_000


def at_once(steps: Steps[T]) -> T:
    """What the steps return at the end, all of them taken now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class QueryBudget:
    """The turns of one diagnosis. `trials` counts the hypothetical decisions, `nodes` the nodes looked at, `work` the
    units of work.
    """

    def __init__(self, view: View, most: int = TRIALS, work: int = WORK) -> None:
        self.trials = 0
        self.nodes = 0
        self.work = 0
        self.complete = True
        """Nothing was left out so far."""
        self._view = view
        self._budgets = view.budgets()
        self._step = 0
        self._most_trials, self._most_work = most, work

    def must_yield(self, units: int) -> bool:
        """Count work that was done, or is small; True when others have to be let go first: yield then."""
        self.work += units
        self._step += units
        if self._step < STEP:
            return False
        self._step = 0
        return True

    def spent(self) -> bool:
        """Whether no more may be tried; notes that something was left out."""
        if self.trials >= self._most_trials or self.work >= self._most_work:
            self.complete = False
            return True
        return False

    def turn(self, ask: Callable[[View], T]) -> Steps[T | None]:
        """The answer, in as many turns as it takes; None when nobody can say yet."""
        for budget in self._budgets:
            try:
                found = ask(self._view.with_budget(budget))
            except TurnSpent:
                self.must_yield(budget.used)
                yield
                continue
            except Deferred:
                break
            if self.must_yield(budget.used):
                yield
            return found
        self.complete = False
        return None


class Made(Sequence[T]):
    """So many things in order, each made when it is asked for: of many that are told apart by halving few are."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = max(count, 0)
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._make(position) for position in range(self._count)[index]]
        return self._make(range(self._count)[index])
