"""The decision for one node: which devices the pod's claims get there, all or nothing.

Promises: pure and deterministic but for share IDs; the same devices, in the same order, as Kubernetes 1.36 with its
known defects corrected (docs/differences.md). What is fatal for the attempt is a Failure, what concerns this node only
Unfit.

Which errors are noticed: exactly those that the documented order of evaluation meets. An ExactCount request looks at
devices one after the other, and not at those in use; an All request looks at every device before the search starts. A
plain `no` is never preferred to an error the order meets first, nor the other way round.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go.
"""

from __future__ import annotations

from collections.abc import Collection

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.plan import INVALID_POOLS, NO_SOLUTION, STEP_BUDGET, Failure, Plan, Unfit, undecided
from dra_extender.allocation.proofs.bounds import ALL, Bounds, Proof
from dra_extender.allocation.questions import Searched
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.allocation.result import ShareIDs, allocations
from dra_extender.allocation.search import Outcome, Search
from dra_extender.allocation.state import State
from dra_extender.allocation.task import Failed, Task
from dra_extender.cel import Work
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.nodeview import NodeView


class Allocator:
    """Decides nodes one by one. Keeps nothing between calls."""

    def __init__(
        self,
        *,
        share_ids: ShareIDs,
        step_budget: int = STEP_BUDGET,
        proofs: Collection[Proof] = ALL,
    ) -> None:
        self._budget = step_budget
        self._share_ids = share_ids
        self._proofs = proofs

    def allocate(
        self,
        prepared: PreparedClaims,
        view: NodeView,
        holdings: NodeHoldings,
        budget: WorkBudget = UNLIMITED,
        work: Work | None = None,
    ) -> Plan | Unfit | Failure:
        """Devices for all claims on the node of the view, given what is held there already. Raises what the budget does
        when a selector has to be evaluated, and WorkExceeded when `work` does not suffice for the search.
        """
        steps = 0
        try:
            found = self.find(prepared, view, holdings, budget, work)
            steps = found.steps
            if isinstance(found, Unfit):
                return found
            return Plan(allocations(found.task, found.state.taken, self._share_ids), steps)
        except Failed as failure:
            return Failure(failure.text(prepared), steps)

    def find(
        self, prepared: PreparedClaims, view: NodeView, holdings: NodeHoldings, budget: WorkBudget, work: Work | None
    ) -> Search | Unfit:
        """The search that has found devices. Raises Failed, and as `allocate`."""
        if view.error:
            raise Failed(view.error)
        task = Task(prepared, view, holdings, budget, work)
        if lacking(task) is not None:
            return Unfit(_reason(view), 1)
        search, outcome = self.search(task)
        if outcome is Outcome.FOUND:
            return search
        if outcome is Outcome.UNDECIDED:
            return Unfit(undecided(self._budget), search.steps)
        return Unfit(_reason(view), search.steps)

    def replay(
        self,
        prepared: PreparedClaims,
        view: NodeView,
        holdings: NodeHoldings,
        answer: Searched,
        budget: WorkBudget = UNLIMITED,
    ) -> Plan | Unfit | Failure:
        """What a search that was made elsewhere, on the same state, came to. Raises what the budget does."""
        if answer.reason:
            return Unfit(answer.reason, answer.steps)
        try:
            if answer.error:
                raise Failed(answer.error, answer.claim)
            task = Task(prepared, view, holdings, budget)
            state = State(task)
            for request, alternative, device in answer.taken:
                option = task.options[request][alternative]
                if not option.candidates.usable >> device & 1:
                    return Unfit(NO_SOLUTION, answer.steps)
                state.take(option, device)
            return Plan(allocations(task, state.taken, self._share_ids), answer.steps)
        except Failed as failure:
            return Failure(failure.text(prepared), answer.steps)
        except IndexError:
            return Unfit(NO_SOLUTION, answer.steps)

    def search(self, task: Task) -> tuple[Search, Outcome]:
        """First straight on; at the first dead end once more from the start, with foresight. Raises Failed."""
        search = Search(task, self._budget)
        outcome = search.run()
        if outcome is Outcome.UNDECIDED and search.steps <= self._budget:
            search = Search(task, self._budget, Bounds(task, self._proofs))
            outcome = search.run()
        return search, outcome


def lacking(task: Task) -> int | None:
    """The first request that has too few devices on its own; None when there is none before the first at which the
    search could meet an error.
    """
    for request, options in enumerate(task.options):
        if any(option.raises for option in options):
            return None
        for option in options:
            if option.need <= option.usable.bit_count() and (option.need or not option.all):
                break
        else:
            return request
    return None


def _reason(view: NodeView) -> str:
    return INVALID_POOLS if view.invalid else NO_SOLUTION
