"""How much of a long question is answered at a time, and altogether.

Promises: between two steps of a question the event loop is free; a step is one turn of a lane, or a few hundred nodes.
`TRIALS` hypothetical decisions are made at most, whatever claims and clusters contain.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from app.allocation.lane import Exhausted, Waiting
from app.scheduling.view import View

T = TypeVar("T")
Steps = Generator[None, None, T]
"""What is done a step at a time, with a result at the end."""

PORTION: Final = 250
"""Nodes looked at in one step."""
TRIALS: Final = 400


def at_once(steps: Steps[T]) -> T:
    """What the steps return at the end, all of them taken now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Pace:
    """The turns of one question. `trials` counts the hypothetical decisions, `nodes` the nodes looked at."""

    def __init__(self, view: View, most: int = TRIALS) -> None:
        self.trials = 0
        self.nodes = 0
        self.complete = True
        """Nothing was left out so far."""
        self._turns = view.turns()
        self._most = most

    def spent(self) -> bool:
        """Whether no more trials may be made; notes that something was left out."""
        if self.trials >= self._most:
            self.complete = False
        return self.trials >= self._most

    def turn(self, ask: Callable[[View], T]) -> Steps[T | None]:
        """The answer, in as many turns as it takes; None when nobody can say yet."""
        while True:
            try:
                return ask(next(self._turns))
            except Exhausted:
                yield
            except (Waiting, StopIteration):
                self.complete = False
                return None

    def looked(self) -> Steps[None]:
        """A node was looked at."""
        self.nodes += 1
        if self.nodes % PORTION == 0:
            yield
