"""The search: depth first, first fit, full backtracking, in exactly the documented order.

Promises
- The search tries claims, requests, alternatives and devices in order. The answer is the first solution in this order,
  or the first fatal error, or that no solution exists.
- Bounds skip parts of the order that provably contain no solution (see `proofs`). They never change which solution is
  first. Without bounds, the search stops at its first dead end and is undecided.
- The search counts its work in steps. When the step budget is used up, the search ends undecided.
- A search without a solution leaves the state as it was before.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (allocateOne). TOO_BIG (more results than
a claim may have) ends the devices of earlier requests without trying others, as sizes do not depend on devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dra_extender.allocation.proofs.bounds import Bounds
from dra_extender.allocation.state import Position, SearchState
from dra_extender.allocation.task import OPTION, AllocationTask, FatalError, RequestOption, failed
from dra_extender.api.resource import MAX_RESULTS

STEP: Final = 10
"""Units of work that a step costs without its proofs and devices."""


class SearchOutcome(Enum):
    """What became of a search or a part of it."""

    FOUND = "found"
    NONE = "none"
    TOO_BIG = "too big"
    UNDECIDED = "undecided"


@dataclass(slots=True, eq=False)
class _Frame:
    """An open decision. `todo`: the devices not tried yet, or the number of alternatives that were begun."""

    position: Position
    todo: int = 0
    only_too_big: bool = True


class Search:
    """One run over one task."""

    def __init__(self, task: AllocationTask, budget: int, bounds: Bounds | None = None) -> None:
        self.task = task
        self.state = SearchState(task)
        self._requests = task.prepared.requests
        self._charge = task.charge
        self._budget = budget
        self._bounds = bounds
        self._stack: list[_Frame] = []
        self._big_claim = 0
        self._own_steps = 0

    @property
    def steps(self) -> int:
        return self._own_steps + (self._bounds.steps if self._bounds is not None else 0)

    def run(self) -> SearchOutcome:
        """FOUND leaves the solution in `state.taken`. Raises FatalError and WorkExceeded."""
        stack = self._stack
        start = self.first_position(0)
        if self._bounds is not None and self._bounds.is_hopeless(self.state, start):
            return SearchOutcome.NONE
        step: Position | SearchOutcome = start
        while True:
            if isinstance(step, Position):
                self._own_steps += 1
                self._charge(STEP)
                if self.steps > self._budget:
                    return SearchOutcome.UNDECIDED
                step = self._down(step)
            elif step is SearchOutcome.FOUND or not stack:
                return SearchOutcome.NONE if step is SearchOutcome.TOO_BIG else step
            elif self._bounds is None:
                return SearchOutcome.UNDECIDED
            else:
                step = self._up(stack[-1], step)

    def first_position(self, request: int) -> Position:
        """Where deciding a request begins."""
        if request < len(self._requests) and not self._requests[request].prioritized:
            option = self.task.options[request][0]
            return Position(request, option, option.need, 0)
        return Position(request, None, 0, 0)

    def _down(self, position: Position) -> Position | SearchOutcome:
        request, option, missing, start = position
        if request == len(self._requests):
            return SearchOutcome.FOUND
        if option is None:
            frame = _Frame(position)
            self._stack.append(frame)
            return self._alternative(frame)
        if option.all and not option.need:
            return SearchOutcome.NONE
        if not missing:
            return self.first_position(request + 1)
        if self.state.counts[option.claim] + missing > MAX_RESULTS:
            self._big_claim = option.claim
            return SearchOutcome.TOO_BIG
        if option.all:
            return self._take_all(position, option)
        state = self.state
        todo = state.allowed(option)
        if option.failing:
            todo |= option.failing & ~state.blocked(option)
        frame = _Frame(position, todo >> start << start)
        self._stack.append(frame)
        return self._pick(frame, option)

    def _alternative(self, frame: _Frame) -> Position | SearchOutcome:
        """The next alternative that is not hopeless."""
        request = frame.position.request
        options = self.task.options[request]
        while frame.todo < len(options):
            option = options[frame.todo]
            frame.todo += 1
            self._charge(1 + len(option.constraints) // OPTION)
            position = Position(request, option, option.need, 0)
            # Counting devices suffices to see that an option is impossible, if the search can meet no error in it.
            few = not self.task.can_raise and self.state.allowed(option).bit_count() < option.need
            if not few and (self._bounds is None or not self._bounds.is_hopeless(self.state, position)):
                return position
            frame.only_too_big = False
        self._stack.pop()
        if frame.only_too_big:
            self._big_claim = self._requests[request].claim
            return SearchOutcome.TOO_BIG
        return SearchOutcome.NONE

    def _pick(self, frame: _Frame, option: RequestOption) -> Position | SearchOutcome:
        """The next device that can be taken and does not make the rest hopeless."""
        state, position = self.state, frame.position
        while frame.todo:
            low = frame.todo & -frame.todo
            frame.todo ^= low
            device = low.bit_length() - 1
            if option.failing & low:
                raise failed(
                    option.candidates.failures[device], option.ask, option.claim, self.task.view.devices[device]
                )
            self._charge(state.cost(option, device))
            affordable = state.counters_suffice(option, device) and state.capacity_suffices(option, device)
            if not affordable or (option.fails and not state.accepts(option, device)):
                continue
            state.take(option, device)
            if position.missing == 1:
                after = self.first_position(position.request + 1)
            else:
                after = Position(position.request, option, position.missing - 1, device + 1)
            if self._bounds is None or not self._bounds.is_hopeless(state, after):
                return after
            state.give_back()
        self._stack.pop()
        return SearchOutcome.NONE

    def _take_all(self, position: Position, option: RequestOption) -> Position | SearchOutcome:
        """Every device of mode All, or nothing. Raises FatalError when a constraint refuses one that could be had."""
        state = self.state
        blocked = state.blocked(option) | self.task.view.unserved | (0 if option.admin else self.task.holdings.owned)
        for count, device in enumerate(option.devices):
            bit = 1 << device
            self._charge(state.cost(option, device))
            possible = not blocked & bit and option.candidates.usable & bit and state.counters_suffice(option, device)
            if possible:
                if not state.accepts(option, device):
                    raise self._refused(option, device)
                possible = option.usable & bit and state.capacity_suffices(option, device)
            if not possible:
                for _ in range(count):
                    state.give_back()
                return SearchOutcome.NONE
            state.take(option, device)
        after = self.first_position(position.request + 1)
        if self._bounds is not None and self._bounds.is_hopeless(state, after):
            for _ in option.devices:
                state.give_back()
            return SearchOutcome.NONE
        self._stack.append(_Frame(position))
        return after

    def _refused(self, option: RequestOption, device: int) -> FatalError:
        name = "/".join(self.task.view.devices[device].id)
        why = "because a claim constraint would not be satisfied"
        return FatalError(f", request {option.ask.label}: cannot add device {name} {why}", option.claim)

    def _up(self, frame: _Frame, outcome: SearchOutcome) -> Position | SearchOutcome:
        """Undo the latest choice of the frame and make another one."""
        if outcome is SearchOutcome.TOO_BIG and self._requests[frame.position.request].claim != self._big_claim:
            outcome = SearchOutcome.NONE
        option = frame.position.option
        if option is None:
            frame.only_too_big = frame.only_too_big and outcome is SearchOutcome.TOO_BIG
            return self._alternative(frame)
        if option.all:
            for _ in option.devices:
                self.state.give_back()
            self._stack.pop()
            return outcome
        self.state.give_back()
        if outcome is SearchOutcome.TOO_BIG:
            self._stack.pop()
            return outcome
        return self._pick(frame, option)
