"""The state of one evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dra_extender.cel.cost import LIMIT
from dra_extender.cel.errors import Fault, too_costly
from dra_extender.cel.joined import Joined
from dra_extender.cel.meter import Meter
from dra_extender.cel.work import Work


class Roots(Protocol):
    """What an evaluation is about."""

    def root(self, name: str) -> Any:
        """The value of a variable that every expression may name. Raises Fault."""


class Frame:
    """One evaluation: what it is about, the local variables, what it has cost so far, and what it uses."""

    __slots__ = ("cost", "meter", "values", "view", "work")

    def __init__(self, view: Roots, variables: int, work: Work) -> None:
        self.view = view
        self.work = work
        self.meter = Meter(work)
        self.values: list[Any] = [None] * variables
        self.cost = 0

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > LIMIT:
            raise too_costly()


Evaluate = Callable[[Frame], Any]
"""A node, ready to be evaluated. Raises Fault and Abort."""


class Lazy:
    """A `cel.bind` variable: evaluated when first used, even if that fails."""

    __slots__ = ("_evaluate", "_fault", "_joined", "_kept", "_value")

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate: Evaluate | None = evaluate
        self._value: Any = None
        self._fault: Fault | None = None
        self._joined: Joined | None = None
        self._kept = 0

    def get(self, frame: Frame) -> Any:
        evaluate = self._evaluate
        if evaluate is not None:
            self._evaluate = None
            before = frame.meter.passing
            try:
                self._value = evaluate(frame)
            except Fault as fault:
                self._fault = fault.with_traceback(None)  # which would keep every value on the way alive
                frame.meter.passing = before
            self._kept = frame.meter.remember(before)
            if self._value.__class__ is Joined and not self._value.is_owned:
                self._joined = self._value
                self._joined.is_owned = True
        if self._fault is not None:
            raise self._fault
        return self._value

    @property
    def kept(self) -> int:
        """How many bytes the value takes."""
        return self._kept if self._joined is None else self._kept + self._joined.kept
