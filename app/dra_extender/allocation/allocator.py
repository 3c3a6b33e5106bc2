"""The decision for one node: which devices the pod's claims get there, all or nothing.

Promises: pure, and deterministic except for share IDs. The allocator takes the same devices in the same order as
Kubernetes 1.36 with its known defects corrected (docs/differences.md). An error that is fatal for the attempt is a
Failure; a reason that concerns only this node is Unfit.

Errors: the allocator reports exactly the errors that the documented order of evaluation meets. An ExactCount request
evaluates devices one after the other and skips devices in use. An All request evaluates every device before the search
starts. The first result in this order decides: an error, or that the node does not fit.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go.
"""

from __future__ import annotations

from collections.abc import Collection

from dra_extender.allocation import selectors
from dra_extender.allocation.budget import UNLIMITED, WorkBudget, search_work
from dra_extender.allocation.plan import INVALID_POOLS, NO_SOLUTION, STEP_BUDGET, Failure, Plan, Unfit, undecided
from dra_extender.allocation.proofs.bounds import ALL, Bounds, Proof
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.allocation.result import ShareIDs, allocations
from dra_extender.allocation.search import Search, SearchOutcome
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask, FatalError
from dra_extender.allocation.workerrequests import SearchReply, SearchRequest, WorkerReply, WorkerRequest
from dra_extender.cel import Programs, Work, WorkExceeded
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.pools import NodeView


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
        when a selector has to be evaluated, and WorkExceeded when `work` does not suffice for the search. Without
        `work`, the step budget limits the work as well.
        """
        steps = 0
        try:
            found = self.find(prepared, view, holdings, budget, work)
            steps = found.steps
            if isinstance(found, Unfit):
                return found
            return Plan(allocations(found.task, found.state.taken, self._share_ids), steps)
        except FatalError as failure:
            return Failure(failure.text(prepared), steps)

    def find(
        self, prepared: PreparedClaims, view: NodeView, holdings: NodeHoldings, budget: WorkBudget, work: Work | None
    ) -> Search | Unfit:
        """The search that has found devices. Raises FatalError, and as `allocate`."""
        if view.error:
            raise FatalError(view.error)
        if work is not None:
            return self._find(AllocationTask(prepared, view, holdings, budget, work))
        limit = search_work(self._budget)
        try:
            return self._find(AllocationTask(prepared, view, holdings, budget, limit))
        except WorkExceeded:
            return Unfit(undecided(self._budget), self._budget)
        finally:
            budget.spend(search_work(self._budget).left - limit.left)

    def _find(self, task: AllocationTask) -> Search | Unfit:
        view = task.view
        if lacking(task):
            return Unfit(_reason(view), 1)
        search, outcome = self.search(task)
        if outcome is SearchOutcome.FOUND:
            return search
        if outcome is SearchOutcome.UNDECIDED:
            return Unfit(undecided(self._budget), search.steps)
        return Unfit(_reason(view), search.steps)

    def replay(
        self,
        prepared: PreparedClaims,
        view: NodeView,
        holdings: NodeHoldings,
        reply: SearchReply,
        budget: WorkBudget = UNLIMITED,
    ) -> Plan | Unfit | Failure:
        """The result of a search that a worker made on the same state. Raises what the budget does."""
        if reply.reason:
            return Unfit(reply.reason, reply.steps)
        try:
            if reply.error:
                raise FatalError(reply.error, reply.claim)
            task = AllocationTask(prepared, view, holdings, budget)
            state = SearchState(task)
            for request, alternative, device in reply.taken:
                option = task.options[request][alternative]
                if not option.candidates.usable >> device & 1:
                    return Unfit(NO_SOLUTION, reply.steps)
                state.take(option, device)
            return Plan(allocations(task, state.taken, self._share_ids), reply.steps)
        except FatalError as failure:
            return Failure(failure.text(prepared), reply.steps)
        except IndexError:
            return Unfit(NO_SOLUTION, reply.steps)

    def search(self, task: AllocationTask) -> tuple[Search, SearchOutcome]:
        """Without proofs; at the first dead end once more from the start, with them. Raises FatalError."""
        search = Search(task, self._budget)
        outcome = search.run()
        if outcome is SearchOutcome.UNDECIDED and search.steps <= self._budget:
            search = Search(task, self._budget, Bounds(task, self._proofs))
            outcome = search.run()
        return search, outcome


def lacking(task: AllocationTask) -> bool:
    """True when a request has too few devices on its own, and the search could meet no error before this request."""
    for options in task.options:
        if any(option.raises for option in options):
            return False
        for option in options:
            if option.need <= option.usable.bit_count() and (option.need or not option.all):
                break
        else:
            return True
    return False


def _reason(view: NodeView) -> str:
    return INVALID_POOLS if view.invalid else NO_SOLUTION


def reply_to(request: WorkerRequest, step_budget: int = STEP_BUDGET, programs: Programs | None = None) -> WorkerReply:
    """The reply of a worker. The same code decides on the event loop; here it has no work limit. No content of a
    request makes it raise.
    """
    if not isinstance(request, SearchRequest):
        return selectors.reply_to(request, programs or Programs(0))
    allocator = Allocator(share_ids=str, step_budget=step_budget)
    try:
        found = allocator.find(request.prepared, request.view, request.holdings, UNLIMITED, None)
    except FatalError as failure:
        return SearchReply(0, error=failure.problem, claim=failure.claim)
    if isinstance(found, Unfit):
        return SearchReply(found.steps, reason=found.reason)
    options = found.task.options
    taken = tuple(
        (item.option.request, options[item.option.request].index(item.option), item.device)
        for item in found.state.taken
    )
    return SearchReply(found.steps, taken)
