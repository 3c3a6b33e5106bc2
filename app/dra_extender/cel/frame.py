"""The state of one evaluation: what it is about, its local variables, and what it has cost and used so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_extender.cel.cost import LIMIT
from dra_extender.cel.device import DeviceView
from dra_extender.cel.errors import Fault, too_costly
from dra_extender.cel.work import Meter, Patterns, Work


class Frame(Meter):
    """One evaluation. `cost` is Kubernetes'; work and memory are those of the `Meter`."""

    __slots__ = ("cost", "values", "view")

    def __init__(self, view: DeviceView, variables: int, work: Work, patterns: Patterns) -> None:
        super().__init__(work, patterns)
        self.view = view
        self.values: list[Any] = [None] * variables
        self.cost = 0

    def add_cost(self, cost: int) -> None:
        """Raises Abort above the limit of costs."""
        self.cost += cost
        if self.cost > LIMIT:
            raise too_costly()


Evaluate = Callable[[Frame], Any]
"""A node, ready to be evaluated. Raises Fault and Abort."""


class Lazy:
    """A `cel.bind` variable: evaluated when first used, even if that fails. `kept`: how many bytes its value takes."""

    __slots__ = ("_evaluate", "_fault", "_value", "kept")

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate: Evaluate | None = evaluate
        self._value: Any = None
        self._fault: Fault | None = None
        self.kept = 0

    def get(self, frame: Frame) -> Any:
        evaluate = self._evaluate
        if evaluate is not None:
            self._evaluate = None
            before = frame.passing
            try:
                self._value = evaluate(frame)
            except Fault as fault:
                self._fault = fault.with_traceback(None)  # which would keep every value on the way alive
                frame.passing = before
            self.kept = frame.remember(before)
        if self._fault is not None:
            raise self._fault
        return self._value
