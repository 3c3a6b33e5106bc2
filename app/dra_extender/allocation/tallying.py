"""Makes a tally of a node's devices, request by request and rule by rule.

Promises: the verdict and the order of the rules are those of the search (`explanation`). A device counts under the
first rule that takes it away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.constraints import AttributeConstraint
from dra_extender.allocation.explanation import TakenAway, explain, taken_away
from dra_extender.allocation.plan import RULES, STEP_BUDGET, Failure, Rule
from dra_extender.allocation.requests import Ask, DeviceFilter, PreparedClaims
from dra_extender.allocation.selection import losses, suitability
from dra_extender.allocation.selectors import cel_gates, compiled, device_view, matches
from dra_extender.allocation.tally import (
    CapacityTally,
    ClauseTally,
    ConstraintTally,
    CounterTally,
    ErrorTally,
    Held,
    NodeTally,
    RequestTally,
    RuleCount,
    TaintTally,
    ValueTally,
)
from dra_extender.allocation.task import AllocationTask
from dra_extender.allocation.workerrequests import CompileReply
from dra_extender.api.core import tolerates
from dra_extender.api.quantity import Format, Quantity
from dra_extender.cel import CelCompileError, CelRuntimeError, DeviceView, ReadSet, Work, WorkExceeded
from dra_extender.cel.clauses import clauses
from dra_extender.cel.trial import misspelt, value_of
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import NO_AMOUNTS

VALUES: Final = 8
"""How many values of an attribute that a clause reads are listed."""
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
    """The tally of one node. Raises what the budget does, and WorkExceeded when the verdict is not known by then."""
    explanation, task = explain(prepared, view, holdings, step_budget, budget, work)
    found = NodeTally(
        view.node, explanation.verdict, explanation.reason, stuck=explanation.stuck, pools=explanation.pools
    )
    if isinstance(prepared, Failure) or view.error:
        return found
    try:
        if task is not None:
            return _counted(task, found)
        return msgspec.structs.replace(found, requests=tuple(_static(prepared, view, budget, work)))
    except WorkExceeded:
        return found


def _counted(task: AllocationTask, found: NodeTally) -> NodeTally:
    """With the counts. Raises what the budget does, and WorkExceeded."""
    taken = list(taken_away(task))
    texts = Work(WORK)
    several = {item.option.request for item in taken if len(task.options[item.option.request]) > 1}
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


def _static(prepared: PreparedClaims, view: NodeView, budget: WorkBudget, work: Work | None) -> Iterator[RequestTally]:
    """The counts of a node on which the search does not begin."""
    context = _NodeContext(prepared, view, budget, work, Work(WORK))
    for request in prepared.requests:
        for ask in request.asks:
            masks: dict[Rule, int] = {}
            for device, rule in losses(view, ask.filter, budget):
                masks[rule] = masks.get(rule, 0) | 1 << device
            left = view.all & ~sum(masks.values())
            yield _tallied(context, request.claim, ask, masks, left, 0 if ask.all else ask.count)


class _NodeContext(NamedTuple):
    """What all requests of a node share: `texts` is the work for the texts of errors."""

    prepared: PreparedClaims
    view: NodeView
    budget: WorkBudget
    work: Work | None
    texts: Work

    def charge(self, units: int) -> None:
        """Raises WorkExceeded."""
        if self.work is not None:
            self.work.charge(units)


def _request(task: AllocationTask, taken: TakenAway, texts: Work) -> RequestTally:
    option, masks = taken.option, taken.by_rule
    context = _NodeContext(task.prepared, task.view, task.budget, task.work, texts)
    found = _tallied(context, option.claim, option.ask, masks, taken.left, option.need)
    held = masks.get("in use", 0) | masks.get("capacity", 0) | masks.get("counters", 0)
    devices = [Held(*device.id) for device in _devices(task.view, held)]
    capacities: tuple[CapacityTally, ...] = ()
    if masks.get("capacity"):
        offered = task.view.all & ~masks.get("class", 0) & ~masks.get("selector", 0)
        context.charge(offered.bit_count() * max(1, len(option.ask.filter.capacity)) // COUNTED)
        capacities = tuple(_capacities(task, option.ask.filter, offered))
    counters = tuple(_counters(task, masks.get("counters", 0)))
    return msgspec.structs.replace(found, held=tuple(devices[:HELD]), capacities=capacities, counters=counters)


def _tallied(
    context: _NodeContext, claim: int, ask: Ask, masks: Mapping[Rule, int], left: int, need: int
) -> RequestTally:
    prepared, view, budget = context.prepared, context.view, context.budget
    context.charge(1 + len(view.devices) // COUNTED)
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
        clauses=tuple(_clauses(ask, view, masks, budget)) if evaluated else (),
        taints=tuple(_taints(ask, context, masks.get("taint", 0))),
        errors=tuple(_errors(ask, context, masks.get("error", 0))),
    )


def _devices(view: NodeView, mask: int) -> Iterator[Any]:
    while mask:
        low = mask & -mask
        yield view.devices[low.bit_length() - 1]
        mask ^= low


# --- selectors --------------------------------------------------------------------------------------------------------


def _clauses(ask: Ask, view: NodeView, masks: Mapping[Rule, int], budget: WorkBudget) -> Iterator[ClauseTally]:
    """Tallies of the request's selectors over the devices of the class. If the class selects no device: tallies of the
    class's selectors over all devices.
    """
    filter = ask.filter
    everything = masks.get("class", 0).bit_count() == len(view.devices)
    if everything:
        yield from _clauses_of("class", filter.class_selectors, filter, _models(view, view.all), budget)
    else:
        mask = view.all & ~masks.get("class", 0)
        yield from _clauses_of("request", filter.selectors, filter, _models(view, mask), budget)


def _models(view: NodeView, mask: int) -> Sequence[tuple[DeviceModel, int]]:
    counts = Counter(device.model for device in _devices(view, mask))
    return list(counts.items())


def _clauses_of(
    source: Literal["class", "request"],
    selectors: Sequence[str],
    filter: DeviceFilter,
    models: Sequence[tuple[DeviceModel, int]],
    budget: WorkBudget,
) -> Iterator[ClauseTally]:
    views = [(device_view(model, filter.features), count) for model, count in models]
    for index, expression in enumerate(selectors):
        for number, text in enumerate(clauses(expression)):
            try:
                program = compiled(text, filter, budget)
            except CelCompileError:
                continue
            excluded = failed = 0
            for view, count in views:
                answer = matches(program, text, filter, view, budget)
                excluded += count if answer is False else 0
                failed += count if isinstance(answer, str) else 0
            if excluded or failed:
                reads, values = ("", ()) if isinstance(program, CompileReply) else _read(program.reads, views)
                yield ClauseTally(source, index, number, text, excluded, failed, reads, values)


def _read(reads: ReadSet, views: Sequence[tuple[DeviceView, int]]) -> tuple[str, tuple[ValueTally, ...]]:
    counts: Counter[str] = Counter()
    name = ""
    for view, count in views:
        found = value_of(reads, view)
        if found is None:
            return "", ()
        name = found[0]
        counts[found[1]] += count
    return name, tuple(ValueTally(text, count) for text, count in counts.most_common(VALUES))


def _errors(ask: Ask, context: _NodeContext, mask: int) -> Iterator[ErrorTally]:
    view, budget = context.view, context.budget
    first: dict[tuple[str, str], ErrorTally] = {}
    for index, device in enumerate(view.devices):
        if not mask >> index & 1:
            continue
        failure = suitability(device.model, ask.filter, budget).failure
        source = failure.source if failure is not None else "node"
        text = failure.text if failure is not None else view.unmatchable.get(index, "")
        known = first.get((source, text))
        if known is not None:
            first[source, text] = msgspec.structs.replace(known, count=known.count + 1)
        elif failure is None or source == "node":
            first[source, text] = ErrorTally("node", 0, "", text, "/".join(device.id), 1)
        else:
            texts = ask.filter.class_selectors if source == "class" else ask.filter.selectors
            expression = texts[failure.index]
            known = ErrorTally(source, failure.index, expression, text, "/".join(device.id), 1)
            first[source, text] = _worded(known, device.model, ask.filter, context.texts)
    yield from first.values()


def _worded(found: ErrorTally, model: DeviceModel, filter: DeviceFilter, work: Work) -> ErrorTally:
    """With the problem, a hint and the name that may be meant, if the selector can be evaluated here."""
    expression, view = found.expression, device_view(model, filter.features)
    try:
        filter.programs.compile(expression, cel_gates(filter.features), work).evaluate(view, work)
    except CelRuntimeError as error:
        found = msgspec.structs.replace(found, problem=error.message, hint=error.hint, key=error.key)
    except CelCompileError as error:
        return msgspec.structs.replace(found, problem=error.message, hint=error.hint)
    except WorkExceeded:
        return found
    try:
        word, near = misspelt(expression, found.key, view, work) if found.key else ("", "")
    except WorkExceeded:
        return found
    return msgspec.structs.replace(found, word=word, near=near)


# --- the other rules --------------------------------------------------------------------------------------------------


def _taints(ask: Ask, context: _NodeContext, mask: int) -> Iterator[TaintTally]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for device in _devices(context.view, mask):
        taints = device.model.traits.taints
        context.charge(1 + len(taints) * (1 + len(ask.tolerations)) // COUNTED)
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
            tuple(amount.text for amount in left[:VALUES]),
        )


def _counters(task: AllocationTask, mask: int) -> Iterator[CounterTally]:
    layout = task.counters
    if layout is None:
        return
    least: dict[tuple[str, str], int] = {}
    most: dict[tuple[str, str], int] = {}
    for index in range(mask.bit_length()):
        if not mask >> index & 1:
            continue
        for number, amount in layout.charges.get(index, ()):
            left = task.first_left[number]
            if amount > left:
                name = layout.names[number][1:]
                least[name] = min(amount, least.get(name, amount))
                most[name] = max(left, most.get(name, left))
    for name, amount in least.items():
        yield CounterTally(*name, _amount(amount), _amount(max(most[name], 0)))


def _amount(nano: int) -> str:
    """A counter has no unit: an amount that is a whole number of Mi is written in Mi."""
    return Quantity(nano, Format.DECIMAL_SI if nano % _MEBI else Format.BINARY_SI).text


def _constraints(task: AllocationTask, taken: Sequence[TakenAway]) -> Iterator[ConstraintTally]:
    for number, claim in enumerate(task.prepared.claims):
        for index, place in enumerate(task.claim_constraints[number]):
            covered = [item for item in taken if place in item.option.constraints]
            source, constraint = claim.constraints[index], task.constraints[place]
            if not covered:
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
                _best(constraint, mask),
                (mask & ~constraint.table.present).bit_count(),
            )


def _best(constraint: AttributeConstraint, mask: int) -> int:
    groups = [(group & mask).bit_count() for group in constraint.table.groups]
    return max(groups, default=0) if constraint.match else sum(1 for group in groups if group)
