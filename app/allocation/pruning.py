"""What a search may skip, put together.

Promises: only parts of the documented order without a solution are skipped. `Bounds` prove that there is none by what
devices are left; they would also hide an error on the way, so a fragile task (one in which an error could be reached)
does without them. `Nogoods` remember what was explored completely, errors included, and serve every task.
"""

from __future__ import annotations

from app.allocation.bounds import Bounds
from app.allocation.nogoods import Nogoods
from app.allocation.search import Place
from app.allocation.state import State
from app.allocation.task import Task


class Pruning:
    """The judge of one search. `reason` tells why the latest place was hopeless, `blocking` at which request."""

    def __init__(self, task: Task) -> None:
        self._own_steps = 0
        self._bounds = None if task.fragile else Bounds(task)
        self._nogoods = Nogoods(task)

    @property
    def steps(self) -> int:
        return self._own_steps + (self._bounds.steps if self._bounds is not None else 0)

    @property
    def reason(self) -> str:
        return self._bounds.reason if self._bounds is not None else ""

    @property
    def blocking(self) -> int | None:
        return self._bounds.blocking if self._bounds is not None else None

    def hopeless(self, state: State, place: Place) -> bool:
        """See `search.Judge`."""
        self._own_steps += 1
        if self._nogoods.holds(state, place):
            return True
        return self._bounds is not None and self._bounds.refutes(state, place)

    def failed(self, state: State, place: Place) -> None:
        """See `search.Judge`."""
        self._nogoods.add(state, place)
