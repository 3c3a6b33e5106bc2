"""Why a node can or cannot have a pod's claims, counted per request and rule.

Promises: the verdict is the allocator's, because the same search finds it. The counts describe the start of the search.
Each device counts under the first rule that takes it away, in the order in which the search applies the rules. Only
other requests can still refuse the devices that are left. `stuck` then says at which request the search stopped, and
why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from dra_extender.allocation.allocator import lacking
from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.plan import (
    INVALID_POOLS,
    NO_SOLUTION,
    RULES,
    STEP_BUDGET,
    Explanation,
    Failure,
    Feasibility,
    PoolProblem,
    RequestExplanation,
    Rule,
    RuleLoss,
    Stuck,
    undecided,
)
from dra_extender.allocation.proofs.bounds import Bounds
from dra_extender.allocation.proofs.demands import Demand, OpenOption, dry_devices
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.allocation.result import allocations
from dra_extender.allocation.search import Search, SearchOutcome
from dra_extender.allocation.selection import losses
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask, FatalError, RequestOption
from dra_extender.cel import Work
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.pools import NodeView

NAMED: Final = 3
"""How many devices are named for each rule."""


def explain(
    prepared: PreparedClaims | Failure,
    view: NodeView,
    holdings: NodeHoldings,
    step_budget: int = STEP_BUDGET,
    budget: WorkBudget = UNLIMITED,
    work: Work | None = None,
) -> tuple[Explanation, AllocationTask | None]:
    """The explanation for one node, with the task that was searched; None when the search could not begin. Never raises
    for what objects contain, but what the budget does, and WorkExceeded.
    """
    pools = tuple(_pool_problems(view))
    if isinstance(prepared, Failure):
        return Explanation(view.node, "error", prepared.error, pools=pools), None
    if view.error:
        return Explanation(view.node, "error", view.error, pools=pools), None
    try:
        task = AllocationTask(prepared, view, holdings, budget, work)
    except FatalError as failure:
        return Explanation(view.node, "error", failure.text(prepared), pools=pools), None
    requests = tuple(_requests(task))
    verdict, reason, stuck, steps = _verdict(task, requests, step_budget)
    return Explanation(view.node, verdict, reason, requests, stuck, pools, steps), task


def _pool_problems(view: NodeView) -> Iterator[PoolProblem]:
    for pool in view.pools:
        if pool.problem:
            yield PoolProblem(*pool.id, pool.incomplete, pool.problem)


# --- the verdict ------------------------------------------------------------------------------------------------------


def _verdict(
    task: AllocationTask, requests: tuple[RequestExplanation, ...], step_budget: int
) -> tuple[Feasibility, str, Stuck | None, int]:
    """(verdict, reason, where the search got stuck, steps)."""
    refused = INVALID_POOLS if task.view.invalid else NO_SOLUTION
    scarce = _scarce(task, requests)
    if scarce is not None and lacking(task) is not None:
        return "refused", refused, scarce, 1
    bounds = Bounds(task)
    search = Search(task, step_budget, bounds)
    try:
        outcome = search.run()
        if outcome is SearchOutcome.FOUND:
            allocations(task, search.state.taken, str)
            return "fits", "", None, search.steps
    except FatalError as failure:
        return "error", failure.text(task.prepared), None, search.steps
    stuck = scarce
    if stuck is None:
        furthest = search.stuck.request if search.stuck else 0
        request = bounds.blocking if bounds.blocking is not None else furthest
        stuck = _stuck(task, request, bounds.reason or "every combination of devices was tried")
    if outcome is SearchOutcome.UNDECIDED:
        return "undecided", undecided(step_budget), stuck, search.steps
    return "refused", refused, stuck, search.steps


def _stuck(task: AllocationTask, request: int, cause: str, after: tuple[Rule | Literal["pools"], ...] = ()) -> Stuck:
    found = task.prepared.requests[request]
    return Stuck(task.prepared.claims[found.claim].label, found.name, cause, after)


def _scarce(task: AllocationTask, requests: tuple[RequestExplanation, ...]) -> Stuck | None:
    """The first request that has too few devices on its own whatever is chosen."""
    found = iter(requests)
    for request, options in enumerate(task.options):
        items = [next(found) for _ in options]
        if all(item.left < item.wanted for item in items):
            counts = dict.fromkeys(f"{item.wanted} wanted, {item.left} left" for item in items)
            return _stuck(task, request, ", or ".join(counts), tuple(_last_rule(item) for item in items))
    return None


def _last_rule(item: RequestExplanation) -> Rule | Literal["pools"]:
    """The rule after which the request had too few devices."""
    left = item.pooled
    rule: Rule | Literal["pools"] = "pools"
    for loss in item.losses:
        if left < item.wanted:
            break
        left, rule = left - loss.count, loss.rule
    return rule


# --- counts -----------------------------------------------------------------------------------------------------------


def _requests(task: AllocationTask) -> Iterator[RequestExplanation]:
    for found in taken_away(task):
        yield _explained(task, found.option, found.by_rule, found.left)


class TakenAway(NamedTuple):
    """Masks of the devices that each rule takes away from an option at the start of the search, and of the rest."""

    option: RequestOption
    by_rule: Mapping[Rule, int]
    left: int


def taken_away(task: AllocationTask) -> Iterator[TakenAway]:
    """For each option of each request, in order. Raises what the budget does."""
    state = SearchState(task)
    dry = dry_devices(task, state)
    bounds = Bounds(task)
    for options in task.options:
        for option in options:
            taken: dict[Rule, int] = defaultdict(int)
            for device, rule in losses(task.view, option.ask.filter, task.budget):
                taken[rule] |= 1 << device
            left = option.candidates.usable
            owned = 0 if option.admin else task.holdings.owned
            for rule, gone in (
                ("in use", left & owned),
                ("capacity", left & ~owned & ~_roomy(option)),
                ("counters", 0 if option.admin else left & ~owned & _roomy(option) & dry),
            ):
                taken[rule] |= gone
                left &= ~gone
            unmatched = left & ~_matching(state, bounds, option, left)
            taken["constraint"] = unmatched
            yield TakenAway(option, taken, left & ~unmatched)


def _roomy(option: RequestOption) -> int:
    """Devices with enough capacity left; what mode All wants is compared when it is collected."""
    if option.all:
        return sum(1 << device for device in option.devices)
    return option.usable


def _matching(state: SearchState, bounds: Bounds, option: RequestOption, left: int) -> int:
    """The devices of which enough have an attribute value in common."""
    if not option.constraints or left.bit_count() < option.need:
        return left
    narrowed = bounds.narrow(state, [Demand(option.request, option.claim, [OpenOption(option, left, option.need)])])
    return narrowed[0].mask if narrowed else 0


def _explained(task: AllocationTask, option: RequestOption, taken: Mapping[Rule, int], left: int) -> RequestExplanation:
    found = tuple(
        RuleLoss(rule, taken[rule].bit_count(), _names(task.view, taken[rule])) for rule in RULES if taken.get(rule)
    )
    claim = task.prepared.claims[option.claim].label
    wanted = max(option.need, 1)
    return RequestExplanation(claim, option.ask.name, wanted, len(task.view.devices), found, left.bit_count())


def _names(view: NodeView, mask: int) -> tuple[str, ...]:
    names: list[str] = []
    while mask and len(names) < NAMED:
        low = mask & -mask
        names.append("/".join(view.devices[low.bit_length() - 1].id))
        mask ^= low
    return tuple(names)
