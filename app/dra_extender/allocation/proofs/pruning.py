"""What a search may skip, put together.

Promises: only parts of the documented order without a solution are skipped, and none in which the order meets an
error. `Nogoods` remember what was explored completely, errors included. `Bounds` prove from what devices are left that
there is no solution; as they look at requests up to the next one at which an error could be met and no further, what
they skip never gets there. Where a claim could get too many results they are left out as well, if there are errors to
be met: then it matters for the further order whether a part ends for this or for another reason.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dra_extender.allocation.proofs.bounds import Bounds
from dra_extender.allocation.proofs.nogoods import Nogoods
from dra_extender.allocation.proofs.proof import ALL, Proof
from dra_extender.allocation.search import Position
from dra_extender.allocation.state import State
from dra_extender.allocation.task import Task

LOOK: Final = 20
REQUEST: Final = 8
WIDE: Final = 1_024
"""Units of work that looking at a position costs: as such, and per request for so many devices."""
DEVICE: Final = 3
COUNTED_DEVICE: Final = 10
"""Units of work that the preparation for so many devices costs."""


class Pruning:
    """The pruner of one search. `reason` tells why the latest position was hopeless, `blocking` at which request."""

    def __init__(self, task: Task, proofs: Collection[Proof] = ALL) -> None:
        self._own_steps = 0
        self._task = task
        blind = task.fragile and (task.bulky or Proof.AHEAD not in proofs)
        self._bounds = None if blind else Bounds(task, proofs)
        devices, counted = len(task.view.devices), task.counters is not None
        if task.work is not None:
            task.work.charge(devices * (COUNTED_DEVICE if counted else DEVICE))
        self._cost = LOOK + REQUEST * len(task.options) * (1 + devices // WIDE)
        self._nogoods = Nogoods(task, proofs) if Proof.NOGOODS in proofs else None

    @property
    def steps(self) -> int:
        return self._own_steps + (self._bounds.steps if self._bounds is not None else 0)

    @property
    def reason(self) -> str:
        return self._bounds.reason if self._bounds is not None else ""

    @property
    def blocking(self) -> int | None:
        return self._bounds.blocking if self._bounds is not None else None

    def hopeless(self, state: State, position: Position) -> bool:
        """See `search.Pruner`. Raises WorkExceeded."""
        self._own_steps += 1
        if self._task.work is not None:
            self._task.work.charge(self._cost)
        if self._nogoods is not None and self._nogoods.holds(state, position):
            return True
        if self._bounds is None:
            return False
        harmless = position.option is not None and not position.option.raises
        end = self._task.until_raising(position.request + 1 if harmless else position.request)
        return end > position.request and self._bounds.refutes(state, position, end)

    def failed(self, state: State, position: Position) -> None:
        """See `search.Pruner`."""
        if self._nogoods is not None:
            self._nogoods.add(state, position)
