"""Tallies: how many devices of a node each rule leaves for a pod's claims, and the values that the rule compared.

Promises: devices that the class does not select count in `others` only, not as a loss. A tally names only devices in
use and devices for which a selector fails. `anonymous` removes these names, so nodes that differ only in names have
equal tallies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.plan import Feasibility, PoolProblem, Rule
from dra_extender.allocation.requests import Ask, DeviceFilter
from dra_extender.allocation.selection import suitability
from dra_extender.allocation.selectors import cel_gates, compiled, device_view, matches
from dra_extender.allocation.workerrequests import CompileReply
from dra_extender.cel import CelCompileError, CelRuntimeError, DeviceView, ReadSet, Work, WorkExceeded
from dra_extender.cel.trial import clauses, misspelt, value_of
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView, PooledDevice, places

KEY: Final = 256
"""How many characters are kept of a name that a selector computes."""
TOKENS: Final = 2
"""Units of work for a character of an expression that is split into clauses."""
NAMES: Final = 6
"""How many names are listed where a device does not have one."""
VALUES: Final = 8
"""How many values of an attribute that a clause reads are listed."""


class ValueTally(msgspec.Struct, frozen=True):
    """The number of devices with this value. `text` is empty for devices without a value."""

    text: str
    count: int


class ClauseTally(msgspec.Struct, frozen=True):
    """One clause of a CEL selector: a term of its `&&`. `source` and `index`: the selector, in the class or in the
    request. `number`: the position of the clause in the selector.

    `excluded`: devices that do not satisfy the clause. `failed`: devices for which the evaluation fails. `reads`: the
    attribute, capacity or driver that the clause reads; empty if it reads several. `values`: the values that devices
    have there, the most common first.
    """

    source: Literal["class", "request"]
    index: int
    number: int
    text: str
    excluded: int
    failed: int = 0
    reads: str = ""
    values: tuple[ValueTally, ...] = ()


class TaintTally(msgspec.Struct, frozen=True):
    """The number of devices with this taint, which the request does not tolerate."""

    key: str
    value: str
    effect: str
    count: int


class CapacityTally(msgspec.Struct, frozen=True):
    """A requested capacity. `asked`: the requested amount; empty if all of it is requested. `most`: the largest total
    of a device. `left`: the largest amount that a device has left. `amounts`: the amounts that devices have left, the
    largest first. `devices`: the number of devices with this capacity.
    """

    name: str
    asked: str
    most: str
    left: str
    devices: int
    amounts: tuple[str, ...] = ()


class CounterTally(msgspec.Struct, frozen=True):
    """A shared counter that has too little left. `asked`: the smallest amount that an excluded device consumes. `left`:
    the largest amount that is left.
    """

    counter_set: str
    counter: str
    asked: str
    left: str


class ErrorTally(msgspec.Struct, frozen=True):
    """An error of a CEL selector, for `count` devices. `source` and `index`: the selector, in the class or in the
    request; source "node": the node selector of a device; source "capacity": an amount. `device`: the first device
    with the error. `problem`: the error. `hint`: how to correct it.

    If the selector reads a name that the device does not have, `key` is this name, and `word` is the misspelt word in
    the expression. `near`: the name of the device that is most similar to `word`. `instead`: what the device has.
    """

    source: Literal["class", "request", "node", "capacity"]
    index: int
    expression: str
    problem: str
    device: str
    count: int
    hint: str = ""
    key: str = ""
    word: str = ""
    near: str = ""
    instead: str = ""


class RuleCount(msgspec.Struct, frozen=True):
    """The number of devices that a rule excludes."""

    rule: Rule
    count: int


class Held(msgspec.Struct, frozen=True):
    """A device in use."""

    driver: str
    pool: str
    device: str


class RequestTally(msgspec.Struct, frozen=True):
    """The devices of a node for one request, or for one of its alternatives (`request/alternative`).

    `wanted`: the requested number of devices. `all`: all devices of the class are requested. `offered`: devices of the
    class. `others`: devices of other classes. `losses`: how many devices each rule excludes, in the order of the rules.
    `left`: devices that no rule excludes. `held`: the first of the devices in use. `selectors`: the request has some.
    """

    claim: str
    request: str
    class_name: str
    wanted: int
    all: bool
    offered: int
    others: int
    losses: tuple[RuleCount, ...]
    left: int
    clauses: tuple[ClauseTally, ...] = ()
    taints: tuple[TaintTally, ...] = ()
    capacities: tuple[CapacityTally, ...] = ()
    counters: tuple[CounterTally, ...] = ()
    errors: tuple[ErrorTally, ...] = ()
    held: tuple[Held, ...] = ()
    selectors: bool = False


class ConstraintTally(msgspec.Struct, frozen=True):
    """A constraint of a claim. `index`: its position in the claim. `wanted`: the number of devices that its requests
    need together. `best`: the largest number of devices that satisfy the constraint together, after all other rules.
    `missing`: devices without the attribute.
    """

    claim: str
    index: int
    kind: Literal["matchAttribute", "distinctAttribute"]
    attribute: str
    requests: tuple[str, ...]
    wanted: int
    best: int
    missing: int


class NodeTally(msgspec.Struct, frozen=True):
    """The tally of one node for all claims of a pod. `cause`: why the search found no solution; empty if it found or
    proved none, and if a request has too few devices on its own. `held`: the first devices in use that consume the
    counter that the cause names. The requests without alternatives that share no device need `wanted` devices
    together; the rules leave `available` devices for them.
    """

    node: str
    verdict: Feasibility
    reason: str
    requests: tuple[RequestTally, ...] = ()
    constraints: tuple[ConstraintTally, ...] = ()
    cause: str = ""
    held: tuple[Held, ...] = ()
    pools: tuple[PoolProblem, ...] = ()
    wanted: int = 0
    available: int = 0

    def anonymous(self) -> NodeTally:
        """Without the names of node, pools and devices, so that it is equal for equivalent nodes."""
        pools = tuple(msgspec.structs.replace(found, pool="", problem="") for found in self.pools)
        return msgspec.structs.replace(
            self, node="", held=(), requests=tuple(map(_anonymous, self.requests)), pools=pools
        )


def _anonymous(request: RequestTally) -> RequestTally:
    errors = tuple(msgspec.structs.replace(found, device="") for found in request.errors)
    return msgspec.structs.replace(request, held=(), errors=errors)


def clause_tallies(ask: Ask, view: NodeView, masks: Mapping[Rule, int], budget: WorkBudget) -> Iterator[ClauseTally]:
    """Tallies of the request's selectors over the devices of the class. If the class selects no device: tallies of the
    class's selectors over all devices.
    """
    filter, others = ask.filter, masks.get("class", 0)
    if others.bit_count() == len(view.devices):
        return _clauses_of("class", filter.class_selectors, filter, _models(view, view.all), budget)
    return _clauses_of("request", filter.selectors, filter, _models(view, view.all & ~others), budget)


def _models(view: NodeView, mask: int) -> Sequence[tuple[DeviceModel, int]]:
    counts = Counter(device.model for device in devices_of(view, mask))
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
        for number, text in enumerate(_clauses(expression, budget)):
            program = compiled(text, filter, budget)
            if isinstance(program, CompileReply) and program.problem:
                continue
            excluded = failed = 0
            known: dict[DeviceView, bool | None] = budget.found.setdefault((clause_tallies, text), {})
            for view, count in views:
                if view not in known:  # by an earlier turn of the call
                    answer = matches(program, text, filter, view, budget)
                    known[view] = None if isinstance(answer, str) else answer
                excluded += count if known[view] is False else 0
                failed += count if known[view] is None else 0
            if excluded or failed:
                reads, values = ("", ()) if isinstance(program, CompileReply) else _read(program.reads, views)
                yield ClauseTally(source, index, number, text, excluded, failed, reads, values)


def _clauses(expression: str, budget: WorkBudget) -> Sequence[str]:
    """The turns of a call split an expression once. Raises TurnSpent and Deferred."""
    found, key = budget.found, (clauses, expression)
    if key not in found:
        budget.spend(TOKENS * len(expression))
        found[key] = clauses(expression)
    split: Sequence[str] = found[key]
    return split


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


def error_tallies(ask: Ask, view: NodeView, mask: int, budget: WorkBudget, texts: Work) -> Iterator[ErrorTally]:
    """Tallies of the selectors that fail for these devices. `texts`: the work for the texts of errors."""
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
        elif failure is None or source in ("node", "capacity"):
            first[source, text] = ErrorTally(source, 0, "", text, "/".join(device.id), 1)
        else:
            selectors = ask.filter.class_selectors if source == "class" else ask.filter.selectors
            expression = selectors[failure.index]
            known = ErrorTally(source, failure.index, expression, text, "/".join(device.id), 1)
            first[source, text] = _worded(known, device.model, ask.filter, texts)
    yield from first.values()


def _worded(found: ErrorTally, model: DeviceModel, filter: DeviceFilter, work: Work) -> ErrorTally:
    """With the problem, a hint and the name that may be meant, if the selector can be evaluated here."""
    expression, view = found.expression, device_view(model, filter.features)
    try:
        filter.programs.compile(expression, cel_gates(filter.features), work).evaluate(view, work)
    except CelRuntimeError as error:
        found = msgspec.structs.replace(found, problem=error.message, hint=error.hint, key=error.key[:KEY])
    except CelCompileError as error:
        return msgspec.structs.replace(found, problem=error.message, hint=error.hint)
    except WorkExceeded:
        return found
    try:
        word, near = misspelt(expression, found.key, view, work) if found.key else ("", "")
    except WorkExceeded:
        return found
    instead = _instead(found.key, view) if found.key else ""
    return msgspec.structs.replace(found, word=word, near=near, instead=instead)


def _instead(key: str, view: DeviceView) -> str:
    """What the device has, which does not have an attribute or a domain of this name."""
    if any(name.endswith(f"/{key}") for name in view.capacity):
        return f"{key} is a capacity"
    for name in view.attributes:
        domain, _, identifier = name.partition("/")
        if identifier == key:
            return f"the domain of {key} is {domain}"
    part, kind = (0, "domains") if "." in key else (2, "attributes")
    names = list(dict.fromkeys(name.partition("/")[part] for name in view.attributes))
    more = ", …" if len(names) > NAMES else ""
    if len(names) == 1:
        return f"its only {kind[:-1]} is {names[0]}"
    return f"its {kind} are {', '.join(names[:NAMES])}{more}" if names else f"it has no {kind}"


def devices_of(view: NodeView, mask: int) -> Iterator[PooledDevice]:
    return (view.devices[place] for place in places(mask))
