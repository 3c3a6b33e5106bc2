"""Makes the tally of a node's devices, request by request and rule by rule.

Promises: the verdict is the allocator's, because the same search finds it. The counts describe the start of the search.
A device counts under the first rule that takes it away, in the order in which the search applies the rules. Only other
requests can still refuse the devices that are left; `cause` then says why the search found no solution.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocation.allocator import allocations, lacking
from dra_extender.allocation.budget import UNLIMITED, WorkBudget, search_work
from dra_extender.allocation.constraints import AttributeConstraint, in_any_part
from dra_extender.allocation.counters import CounterLayout
from dra_extender.allocation.plan import (
    INVALID_POOLS,
    NO_SOLUTION,
    RULES,
    STEP_BUDGET,
    Failure,
    PoolProblem,
    Rule,
    undecided,
)
from dra_extender.allocation.proofs.bounds import Bounds
from dra_extender.allocation.proofs.demands import OpenOption, OpenRequest, dry_devices
from dra_extender.allocation.requests import Ask, DeviceFilter, PreparedClaims
from dra_extender.allocation.search import Search, SearchOutcome
from dra_extender.allocation.selection import losses
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.tally import (
    CapacityTally,
    ConstraintTally,
    CounterTally,
    Held,
    NodeTally,
    RequestTally,
    RuleCount,
    TaintTally,
    clause_tallies,
    devices_of,
    error_tallies,
)
from dra_extender.allocation.task import OPTION, AllocationTask, FatalError, RequestOption
from dra_extender.api.quantity import Format, Quantity
from dra_extender.api.tolerations import tolerates
from dra_extender.cel import Work, WorkExceeded
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import NO_AMOUNTS

AMOUNTS: Final = 8
"""How many amounts of a capacity that devices have left are listed."""
_MEBI: Final = 2**20 * 10**9
WORK: Final = 10_000
"""Units of work to evaluate failing selectors of a node again, for the texts of their errors."""
COUNTED: Final = 8
"""Taints, amounts and counters per unit of work."""
HELD: Final = 64
"""How many devices in use are named."""


def tally(
    prepared: PreparedClaims | Failure,
    view: NodeView,
    holdings: NodeHoldings,
    step_budget: int = STEP_BUDGET,
    budget: WorkBudget = UNLIMITED,
    work: Work | None = None,
) -> NodeTally:
    """The tally of one node. Never raises for what objects contain. Raises what the budget does, and WorkExceeded when
    the verdict is not known by then; without `work`, the step budget limits the work as well.
    """
    if work is None:
        work = search_work(step_budget)
        try:
            return tally(prepared, view, holdings, step_budget, budget, work)
        except WorkExceeded:
            return NodeTally(view.node, "undecided", undecided(step_budget))
        finally:
            budget.spend(search_work(step_budget).left - work.left)
    pools = tuple(PoolProblem(*pool.id, pool.incomplete, pool.problem) for pool in view.pools if pool.problem)
    if isinstance(prepared, Failure) or view.error:
        reason = prepared.error if isinstance(prepared, Failure) else view.error
        return NodeTally(view.node, "error", reason, pools=pools)
    try:
        task = AllocationTask(prepared, view, holdings, budget, work)
    except FatalError as failure:
        found = NodeTally(view.node, "error", failure.text(prepared), pools=pools)
        try:
            return msgspec.structs.replace(found, requests=tuple(_static(prepared, view, budget, work)))
        except WorkExceeded:
            return found
    taken = list(_taken_away(task))
    enough = {item.option.request for item in taken if item.left.bit_count() >= max(item.option.need, 1)}
    few = len(enough) < len(task.options)
    found = _verdict(task, few, step_budget, NodeTally(view.node, "refused", "", pools=pools))
    try:
        return _counted(task, taken, found)
    except WorkExceeded:
        return found


def _verdict(task: AllocationTask, few: bool, step_budget: int, start: NodeTally) -> NodeTally:
    """With verdict, reason and cause. `few`: a request has too few devices on its own."""
    refused = msgspec.structs.replace(start, reason=INVALID_POOLS if task.view.invalid else NO_SOLUTION)
    if few and lacking(task):
        return refused
    bounds = Bounds(task)
    search = Search(task, step_budget, bounds)
    try:
        outcome = search.run()
        if outcome is SearchOutcome.FOUND:
            allocations(task.prepared, task.view, search.state.taken, str)
            return msgspec.structs.replace(start, verdict="fits")
    except FatalError as failure:
        return msgspec.structs.replace(start, verdict="error", reason=failure.text(task.prepared))
    if outcome is SearchOutcome.UNDECIDED:
        return msgspec.structs.replace(start, verdict="undecided", reason=undecided(step_budget))
    if few:
        return refused
    if search.steps > bounds.steps:  # the latest reason is about a part of the combinations
        return msgspec.structs.replace(refused, cause="no combination of devices does")
    if bounds.shortage is None or task.counters is None:
        return msgspec.structs.replace(refused, cause=bounds.reason)
    numbers, needed, left = bounds.shortage
    _, group, counter = task.counters.names[numbers[0]]
    counters = f"counter {group}/{counter} has" if len(numbers) == 1 else f"the counters {counter} together have"
    need = f"the requested devices need at least {_amount(needed)} in total, whichever are chosen"
    held = devices_of(task.view, _consumers(task.counters, task.holdings.owned, numbers))
    cause = f"{counters} {_amount(left)} left, {need}"
    return msgspec.structs.replace(refused, cause=cause, held=tuple(Held(*device.id) for device in held)[:HELD])


def _counted(task: AllocationTask, taken: Sequence[TakenAway], found: NodeTally) -> NodeTally:
    """With the counts. Raises what the budget does, and WorkExceeded."""
    texts = Work(WORK)
    several = {item.option.request for item in taken if len(task.options[item.option.request]) > 1}
    several |= {item.option.request for item in taken if item.option.admin or item.left & task.shareable}
    plain = [item for item in taken if item.option.request not in several]
    union = 0
    for item in plain:
        union |= item.left
    return msgspec.structs.replace(
        found,
        requests=tuple(_request(task, item, texts) for item in taken),
        constraints=tuple(_constraints(task, taken)),
        wanted=sum(item.option.need for item in plain),
        available=union.bit_count(),
    )


def _static(prepared: PreparedClaims, view: NodeView, budget: WorkBudget, work: Work) -> Iterator[RequestTally]:
    """The counts of a node on which the search does not begin."""
    context = _NodeContext(prepared, view, budget, work, Work(WORK))
    for request in prepared.requests:
        for ask in request.asks:
            masks = losses(view, ask.filter, budget)
            left = view.all & ~sum(masks.values())
            yield _tallied(context, request.claim, ask, masks, left, 0 if ask.all else ask.count)


class _NodeContext(NamedTuple):
    """What all requests of a node share: `texts` is the work for the texts of errors."""

    prepared: PreparedClaims
    view: NodeView
    budget: WorkBudget
    work: Work
    texts: Work


def _request(task: AllocationTask, taken: TakenAway, texts: Work) -> RequestTally:
    option, masks = taken.option, taken.by_rule
    context = _NodeContext(task.prepared, task.view, task.budget, task.work, texts)
    found = _tallied(context, option.claim, option.ask, masks, taken.left, option.need)
    held = masks.get("in use", 0) | masks.get("capacity", 0)
    counters: tuple[CounterTally, ...] = ()
    if task.counters is not None:
        short = masks.get("counters", 0)
        held |= _in_the_way(task, task.counters, short)
        held |= _members(task, task.counters, masks.get("compatibility groups", 0))
        if short:
            context.work.charge(task.counters.size)
        counters = tuple(_counters(task, task.counters, short))
    devices = [Held(*device.id) for device in devices_of(task.view, held)]
    capacities: tuple[CapacityTally, ...] = ()
    if masks.get("capacity"):
        offered = task.view.all & ~masks.get("class", 0) & ~masks.get("selector", 0)
        sizes = [len(device.model.traits.capacity) for device in devices_of(task.view, offered)]
        context.work.charge(len(task.view.devices) + sum(sizes))
        capacities = tuple(_capacities(task, option.ask.filter, offered))
    return msgspec.structs.replace(found, held=tuple(devices[:HELD]), capacities=capacities, counters=counters)


def _tallied(
    context: _NodeContext, claim: int, ask: Ask, masks: Mapping[Rule, int], left: int, need: int
) -> RequestTally:
    prepared, view, budget = context.prepared, context.view, context.budget
    context.work.charge(1 + len(view.devices))
    others = masks.get("class", 0).bit_count()
    lost = tuple(RuleCount(rule, masks[rule].bit_count()) for rule in RULES if rule != "class" and masks.get(rule))
    evaluated = bool(masks.get("selector") or masks.get("error")) or others == len(view.devices)
    return RequestTally(
        claim=prepared.claims[claim].label,
        request=ask.name,
        class_name=ask.class_name,
        wanted=max(need, 1),
        all=ask.all,
        offered=len(view.devices) - others,
        others=others,
        losses=lost,
        left=left.bit_count(),
        clauses=tuple(clause_tallies(ask, view, masks, budget)) if evaluated else (),
        taints=tuple(_taints(ask, context, masks.get("taint", 0))),
        errors=tuple(error_tallies(ask, view, masks.get("error", 0), budget, context.texts)),
        selectors=bool(ask.filter.selectors),
    )


class TakenAway(NamedTuple):
    """Masks of the devices that each rule takes away from an option at the start of the search, and of the rest."""

    option: RequestOption
    by_rule: Mapping[Rule, int]
    left: int


def _taken_away(task: AllocationTask) -> Iterator[TakenAway]:
    """For each option of each request, in order. Raises what the budget does."""
    state = SearchState(task)
    dry = dry_devices(task, state)
    incompatible = dry & task.counters.incompatible(state.groups) if task.counters is not None else 0
    bounds = Bounds(task)
    for options in task.options:
        for option in options:
            task.charge(OPTION)
            taken: dict[Rule, int] = defaultdict(int, losses(task.view, option.ask.filter, task.budget))
            left = option.candidates.usable & ~task.view.unserved
            taken["node operations"] = option.candidates.usable & task.view.unserved
            owned = 0 if option.admin else task.holdings.owned
            rule: Rule
            for rule, gone in (
                ("in use", left & owned),
                ("capacity", left & ~owned & ~_roomy(option)),
                ("compatibility groups", 0 if option.admin else left & ~owned & _roomy(option) & incompatible),
                ("counters", 0 if option.admin else left & ~owned & _roomy(option) & dry & ~incompatible),
            ):
                taken[rule] |= gone
                left &= ~gone
            taken["constraint"] = unmatched = left & ~_matching(state, bounds, option, left)
            yield TakenAway(option, taken, left & ~unmatched)


def _roomy(option: RequestOption) -> int:
    """Devices with enough capacity left; with the rules of 1.36, mode All collects no others."""
    return option.wanted & option.usable if option.all else option.usable


def _matching(state: SearchState, bounds: Bounds, option: RequestOption, left: int) -> int:
    """The devices of which enough have an attribute value in common."""
    if not option.constraints or left.bit_count() < option.need:
        return left
    narrowed = bounds.narrow(
        state, [OpenRequest(option.request, option.claim, [OpenOption(option, left, option.need)])]
    )
    return narrowed[0].mask if narrowed else 0


def _taints(ask: Ask, context: _NodeContext, mask: int) -> Iterator[TaintTally]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for device in devices_of(context.view, mask):
        taints = device.model.traits.taints
        context.work.charge(1 + len(taints) * (1 + len(ask.tolerations)) // COUNTED)
        for taint in taints:
            if not ask.tolerations or not any(tolerates(toleration, taint) for toleration in ask.tolerations):
                counts[taint.key, taint.value, taint.effect] += 1
    for (key, value, effect), count in counts.most_common():
        yield TaintTally(key, value, effect, count)


def _capacities(task: AllocationTask, filter: DeviceFilter, mask: int) -> Iterator[CapacityTally]:
    names = dict.fromkeys(filter.capacity)
    totals: dict[str, list[Quantity]] = {name: [] for name in names}
    lefts: dict[str, list[Quantity]] = {name: [] for name in names}
    for index, device in enumerate(task.view.devices):
        if not mask >> index & 1 or task.holdings.owned >> index & 1:
            continue
        used = task.holdings.shared.get(index, NO_AMOUNTS)
        for name, offered in device.model.traits.capacity.items():
            if name in names or (name in used and not filter.capacity):
                totals.setdefault(name, []).append(offered.value)
                less = Quantity(used.get(name, 0), offered.value.format)
                lefts.setdefault(name, []).append(offered.value - less)
    for name, found in totals.items():
        asked = filter.capacity.get(name)
        most, left = max(found, default=None), sorted(set(lefts[name]), reverse=True)
        yield CapacityTally(
            name,
            asked.text if asked is not None else "",
            most.text if most is not None else "",
            left[0].text if left else "",
            len(found),
            tuple(amount.text for amount in left[:AMOUNTS]),
        )


def _counters(task: AllocationTask, layout: CounterLayout, mask: int) -> Iterator[CounterTally]:
    least: dict[tuple[str, str], int] = {}
    most: dict[tuple[str, str], int] = {}
    for index in range(mask.bit_length()):
        for number, amount in layout.charges.get(index, ()) if mask >> index & 1 else ():
            left = task.first_left[number]
            if amount > left:
                name = layout.names[number][1:]
                least[name] = min(amount, least.get(name, amount))
                most[name] = max(left, most.get(name, left))
    for name, amount in least.items():
        yield CounterTally(*name, _amount(amount), _amount(max(most[name], 0)))


def _in_the_way(task: AllocationTask, layout: CounterLayout, mask: int) -> int:
    """The devices in use that consume a counter of which these devices need more than is left."""
    if not mask:
        return 0
    short = {
        number
        for index, charges in layout.charges.items()
        if mask >> index & 1
        for number, amount in charges
        if amount > task.first_left[number]
    }
    return _consumers(layout, task.holdings.owned, short)


def _consumers(layout: CounterLayout, mask: int, numbers: Collection[int]) -> int:
    """The devices of the mask that consume one of these counters."""
    return mask & sum({1 << device for number in numbers for device, _ in layout.consumers[number]})


def _members(task: AllocationTask, layout: CounterLayout, mask: int) -> int:
    """The devices in use on the counter sets of these devices."""
    groups, in_use = layout.groups if mask else {}, task.holdings.owned | task.sharing
    sets = {number for device, own in groups.items() if mask >> device & 1 for number, _ in own}
    return sum(1 << each for each, own in groups.items() if in_use >> each & 1 and any(n in sets for n, _ in own))


def _amount(nano: int) -> str:
    """A counter has no unit: an amount that is a whole number of Mi is written in Mi."""
    return Quantity(nano, Format.DECIMAL_SI if nano % _MEBI else Format.BINARY_SI).text


def _constraints(task: AllocationTask, taken: Sequence[TakenAway]) -> Iterator[ConstraintTally]:
    for number, claim in enumerate(task.prepared.claims):
        for index, place in enumerate(task.claim_constraints[number]):
            source, constraint = claim.constraints[index], task.constraints[place]
            task.charge(len(taken) + len(constraint.table.groups) // COUNTED)
            covered = [item for item in taken if place in item.option.constraints]
            if not covered or constraint.problems:  # the problem is the reason then
                continue
            mask = 0
            wanted: dict[int, int] = {}
            for item in covered:
                mask |= item.left | item.by_rule.get("constraint", 0)
                need = wanted.get(item.option.request, item.option.need)
                wanted[item.option.request] = min(need, item.option.need)
            yield ConstraintTally(
                claim.label,
                index,
                "matchAttribute" if constraint.match else "distinctAttribute",
                source.match_attribute or source.distinct_attribute or "",
                tuple(item.option.ask.name for item in covered),
                sum(wanted.values()),
                _best(constraint, mask, len(task.view.devices)),
                (mask & ~in_any_part(constraint.table.present, len(task.view.devices))).bit_count(),
            )


def _best(constraint: AttributeConstraint, mask: int, size: int) -> int:
    groups = [(in_any_part(group, size) & mask).bit_count() for group in constraint.table.groups]
    return max(groups, default=0) if constraint.match else sum(1 for group in groups if group)
