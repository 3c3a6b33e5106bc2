"""The decision for one node: which devices the pod's claims get there, all or nothing.

Promises: pure, and deterministic except for share IDs. The allocator takes the same devices in the same order as
Kubernetes 1.36 with its known defects corrected (docs/differences.md). An error that is fatal for the attempt is a
Failure; a reason that concerns only this node is Unfit.

Errors: the allocator reports exactly the errors that the documented order of evaluation meets. An ExactCount request
evaluates devices one after the other and skips devices in use. An All request evaluates every device before the search
starts. The first result in this order decides: an error, or that the node does not fit.

Results are in the order of allocation. Empty fields are absent. The caller gives one share ID per share. A claim
without requests gets an empty allocation. Class configuration is in the order in which the search uses the classes;
each entry lists the requests that it applies to. Each entry of the claim's configuration appears once, with its own
list of requests. It is left out if the allocation contains none of them. Kubernetes 1.36 repeats the entry for every
request, which can exceed the API's limit. With the rules of 1.37, an entry for all requests has no list.

Promises of `least`: only the search in the published order of devices decides whether a node has a solution, and which
error ends an attempt. A search in another order can only replace this plan by one that costs less. It uses only the
steps that are left of the budget.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (createNodeSelector and Allocate for the
results).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from operator import and_
from typing import Any, Final, Protocol

from cachetools import LRUCache
from msgspec.structs import replace

from dra_extender.allocation import selectors
from dra_extender.allocation.budget import UNLIMITED, WorkBudget, search_work
from dra_extender.allocation.constraints import having
from dra_extender.allocation.plan import INVALID_POOLS, NO_SOLUTION, STEP_BUDGET, Failure, Plan, Unfit, undecided
from dra_extender.allocation.proofs.bounds import ALL, Bounds, Proof
from dra_extender.allocation.requests import Ask, PreparedClaim, PreparedClaims
from dra_extender.allocation.search import Search, SearchOutcome
from dra_extender.allocation.selection import candidates, suitability
from dra_extender.allocation.state import Taken
from dra_extender.allocation.task import AllocationTask, FatalError, RequestOption
from dra_extender.allocation.workerrequests import SearchReply, SearchRequest, WorkerReply, WorkerRequest
from dra_extender.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from dra_extender.cel import Programs, Work, WorkExceeded, unlimited
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.nodeallocatable import NotConsumedError, amounts_of
from dra_extender.devices.nodeselection import NodeSelection, one_node
from dra_extender.devices.pools import NodeView, PooledDevice, seen_together

REMEMBERED_TOGETHER: Final = 64
"""So many combinations of nodes are remembered for the turns of a call."""

ShareIDs = Callable[[], str]
"""A fresh UUID for each call."""


class Allocator:
    """Decides nodes one by one. Keeps nothing between calls."""

    def __init__(self, *, share_ids: ShareIDs, step_budget: int = STEP_BUDGET, proofs: Collection[Proof] = ALL) -> None:
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
            return self._plan(prepared, view, found.state.taken, steps)
        except FatalError as failure:
            return Failure(failure.text(prepared), steps)

    def allocate_together(
        self,
        prepared: PreparedClaims,
        nodes: Sequence[Sequence[str]],
        views: Mapping[str, NodeView],
        holdings: Callable[[NodeView], NodeHoldings],
        budget: WorkBudget,
        work: Work | None,
    ) -> Plan | Unfit | Failure:
        """Devices for claims on several nodes at once; `nodes[i]`: where claim i is used. Mode All means the matching
        devices that one of these nodes sees, and the others have to see them too. Unfit as well where the nodes cannot
        be looked at together (`seen_together`). Raises what the budget does, and WorkExceeded.
        """
        key, found = tuple(views.values()), Unfit(NO_SOLUTION, 0)
        known = budget.found.setdefault(seen_together, LRUCache(REMEMBERED_TOGETHER))
        known[key] = together = known.get(key) or seen_together(key)  # remembers what later turns do not look for again
        if together is None:
            return found
        view, masks = together
        seen = dict(zip(views, masks, strict=True))
        shared = [reduce(and_, (seen[name] for name in names)) for names in nodes]
        choices = (
            dict.fromkeys(names) if any(ask.all for each in claim.requests for ask in each.asks) else names[:1]
            for names, claim in zip(nodes, prepared.claims, strict=True)
        )
        try:
            for chosen in product(*choices):
                allowed = [(mask, seen[name]) for mask, name in zip(shared, chosen, strict=True)]
                search = self._find(
                    AllocationTask(prepared, view, holdings(view), budget, work or unlimited(), allowed)
                )
                if not isinstance(search, Unfit):
                    return self._plan(prepared, view, search.state.taken, search.steps, chosen)
                found = search
        except FatalError as failure:
            return Failure(failure.text(prepared), 0)
        return found

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
        reason = INVALID_POOLS if task.view.invalid else NO_SOLUTION
        if lacking(task):
            return Unfit(reason, 1)
        search, outcome = self.search(task)
        if outcome is SearchOutcome.FOUND:
            return search
        if outcome is SearchOutcome.UNDECIDED:
            return Unfit(undecided(self._budget), search.steps)
        return Unfit(reason, search.steps)

    def replay(
        self, prepared: PreparedClaims, view: NodeView, reply: SearchReply, budget: WorkBudget = UNLIMITED
    ) -> Plan | Unfit | Failure:
        """The result of a search that a worker made on the same state. A device that the rules of single devices leave
        out, or that lacks one of the values, makes the node unfit. The search is not prepared again. Raises what the
        budget does.
        """
        if reply.reason:
            return Unfit(reply.reason, reply.steps)
        try:
            if reply.error:
                raise FatalError(reply.error, reply.claim)
            budget.spend(prepared.units)
            shareable, allowed = view.multi if prepared.features.DRAConsumableCapacity else 0, view.all
            if prepared.values:
                budget.spend(len(view.devices) * len(prepared.values))
                allowed = having(view, prepared.values, prepared.features.DRAListTypeAttributes)
            taken: list[Taken] = []
            for request, alternative, device in reply.taken:
                source, ask = prepared.requests[request], prepared.requests[request].asks[alternative]
                found = candidates(view, ask.filter, budget)
                if not (found.usable & allowed) >> device & 1:
                    return Unfit(NO_SOLUTION, reply.steps)
                taken.append(Taken(RequestOption(ask, source.claim, request, found), device))
                if shareable >> device & 1:
                    taken[-1].takes = suitability(view.devices[device].model, ask.filter, budget).takes or ()
            return self._plan(prepared, view, taken, reply.steps)
        except FatalError as failure:
            return Failure(failure.text(prepared), reply.steps)
        except (IndexError, ValueError):  # ValueError: a negative number
            return Unfit(NO_SOLUTION, reply.steps)

    def _plan(
        self, prepared: PreparedClaims, view: NodeView, taken: Sequence[Taken], steps: int, nodes: Sequence[str] = ()
    ) -> Plan:
        found = allocations(prepared, view, taken, self._share_ids, nodes)
        if not prepared.features.DRANodeAllocatableResources:
            return Plan(found, steps)
        traits = {device.id: device.model.traits for device in (view.devices[item.device] for item in taken)}
        amounts = []
        for claim, allocation in zip(prepared.claims, found, strict=True):
            results = allocation.devices.results
            pairs = ((result, traits[result.id].node_allocatable_resources) for result in results)
            try:
                amounts.append(amounts_of(claim.claim, pairs))
            except NotConsumedError as problem:
                raise FatalError(str(problem)) from None
        return Plan(found, steps, tuple(amounts) if any(amounts) else ())

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


def reply_to(request: WorkerRequest, step_budget: int = STEP_BUDGET, programs: Programs | None = None) -> WorkerReply:
    """The reply of a worker. The same code decides on the event loop; here it has no work limit. No content of a
    request makes it raise.
    """
    if not isinstance(request, SearchRequest):
        return selectors.reply_to(request, programs or Programs(0))
    allocator = Allocator(share_ids=str, step_budget=step_budget)
    try:
        holdings = NodeHoldings(request.view, request.held)
        found = allocator.find(request.prepared, request.view, holdings, UNLIMITED, None)
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


def allocations(
    prepared: PreparedClaims, view: NodeView, taken: Sequence[Taken], share_ids: ShareIDs, nodes: Sequence[str] = ()
) -> tuple[AllocationResult, ...]:
    """One allocation per claim. `nodes`: the node of each claim, if it differs from the node of the view. Raises
    FatalError when a node selector cannot be expressed.
    """
    by_claim: list[list[Taken]] = [[] for _ in prepared.claims]
    for item in taken:
        by_claim[item.option.claim].append(item)
    each = zip(prepared.claims, by_claim, nodes or [view.node] * len(by_claim), strict=True)
    return tuple(_allocation(prepared.features, view, claim, items, share_ids, node) for claim, items, node in each)


def _allocation(
    features: FeatureGates, view: NodeView, claim: PreparedClaim, items: list[Taken], share_ids: ShareIDs, node: str
) -> AllocationResult:
    devices = [view.devices[item.device] for item in items]
    skips = view.skips
    results = tuple(
        _result(item, device, share_ids, skips.get(item.device, ()))
        for item, device in zip(items, devices, strict=True)
    )
    asks: dict[str, Ask] = {item.option.ask.name: item.option.ask for item in items}
    return AllocationResult(
        DeviceAllocationResult(results, configuration(claim, tuple(asks.values()), features)),
        _node_selector(node, claim, devices),
    )


def _result(
    item: Taken, device: PooledDevice, share_ids: ShareIDs, skips: tuple[str, ...]
) -> DeviceRequestAllocationResult:
    driver, pool, name = device.id
    shared = item.takes is not None
    return DeviceRequestAllocationResult(
        item.option.ask.name,
        driver,
        pool,
        name,
        admin_access=True if item.option.admin else None,
        tolerations=item.option.ask.tolerations,
        binding_conditions=device.model.traits.binding_conditions,
        binding_failure_conditions=device.model.traits.binding_failure_conditions,
        share_id=share_ids() if shared else None,
        consumed_capacity=dict(item.takes or ()),
        skip_node_operations=skips,
    )


def _node_selector(node: str, claim: PreparedClaim, devices: Sequence[PooledDevice]) -> NodeSelector | None:
    """Where the allocated devices can be used together; None: everywhere."""
    fields: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    labels: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    for device in devices:
        selection: NodeSelection = device.selection
        if selection.node_name or device.model.traits.binds_to_node:
            return one_node(node)
        if selection.node_selector is None:
            continue
        terms = selection.node_selector.node_selector_terms
        if selection.has_many_terms:
            name = claim.claim.metadata.name
            raise FatalError(
                f"create NodeSelector for claim {name}: unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            for merged, requirements in ((fields, term.match_fields), (labels, term.match_expressions)):
                for item in requirements:
                    merged.setdefault((item.key, item.operator, frozenset(item.values)), item)
    if not fields and not labels:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(labels.values()), tuple(fields.values())),))


def configuration(
    claim: PreparedClaim, chosen: Sequence[Ask], features: FeatureGates
) -> tuple[DeviceAllocationConfiguration, ...]:
    """All entries for a claim; `chosen` is the ask of each of its requests, in order."""
    entries = *_of_classes(claim, chosen), *_of_claim(claim, chosen)
    if not features.is_1_37:
        return entries
    return tuple(replace(entry, requests=()) if _covers(entry.requests, chosen) else entry for entry in entries)


def _covers(requests: Sequence[str], chosen: Sequence[Ask]) -> bool:
    return all(ask.parent in requests or ask.name in requests for ask in chosen)


def _of_classes(claim: PreparedClaim, chosen: Sequence[Ask]) -> list[DeviceAllocationConfiguration]:
    names: dict[str, list[str]] = {}
    for ask in chosen:
        names.setdefault(ask.class_name, []).append(ask.name)
    return [
        DeviceAllocationConfiguration("FromClass", tuple(requests), entry.opaque)
        for name, requests in names.items()
        for entry in claim.classes[name].spec.config
    ]


def _of_claim(claim: PreparedClaim, chosen: Sequence[Ask]) -> list[DeviceAllocationConfiguration]:
    present = {name for ask in chosen for name in (ask.parent, ask.name)}
    return [
        DeviceAllocationConfiguration("FromClaim", entry.requests, entry.opaque)
        for entry in claim.claim.spec.devices.config
        if not entry.requests or not present.isdisjoint(entry.requests)
    ]


class PlanChooser(Protocol):
    """A policy's preferences for one pod on one node. Pure."""

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterable[NodeView]:
        """The view with its devices in other orders, the most promising first."""

    def cost(self, plan: Plan) -> Any:
        """The less the better; all costs can be compared."""

    def summary(self, plan: Plan) -> str:
        """The policy that chose, and the cost, for people."""


Attempt = Callable[[NodeView, int], Plan | Unfit | Failure]
"""The decision on a view, with a step budget."""


def least(first: Plan, orders: Iterable[NodeView], cost: Callable[[Plan], Any], attempt: Attempt, budget: int) -> Plan:
    """The plan that costs least among the first plan and the plans found in other orders; at equal cost the earliest.
    The `steps` of the returned plan count all searches.
    """
    best, best_cost, steps = first, cost(first), first.steps
    for view in orders:
        if steps >= budget:
            break
        found = attempt(view, budget - steps)
        steps += found.steps
        if isinstance(found, Plan) and (found_cost := cost(found)) < best_cost:
            best, best_cost = found, found_cost
    return best if best.steps == steps else replace(best, steps=steps)
