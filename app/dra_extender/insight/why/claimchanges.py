"""Changes of a pod's claims: fewer devices, less capacity, a toleration, another class or constraint.

Promises: all changes are derived from the claims and the devices. `remedies` verifies whether a change helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.core import taint_text
from dra_extender.api.decoding import to_builtins
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import MAX_RESULTS, MAX_TOLERATIONS, DeviceToleration
from dra_extender.insight.why.candidates import (
    CandidateChange,
    ChangeList,
    ChangeLists,
    EditableClaim,
    EditableRequest,
    Order,
    near,
    nearest_first,
    requests_of,
)
from dra_extender.insight.why.report import NodeGroup
from dra_extender.plurals import counted
from dra_extender.scheduling.turns import LazySequence, QueryBudget

CLASSES = 8
ATTRIBUTES = 12
AMOUNTS = 16
HALVED: Final = 6
"""How often a requested amount is halved."""
TAINTS = 64
"""Sets of taints that are tried at most."""
REQUEST: Final = 50
"""Units of work per request."""
CHANGE: Final = 20
"""Units of work per change of a request."""

Tallies = Mapping[tuple[str, str], Sequence[RequestTally]]
"""By claim (namespace/name) and request: the tallies of the nodes."""


class KnownNames(NamedTuple):
    """`classes`: by class, the known drivers of the devices that it selects. `attributes`: full names of the attributes
    that devices have; `capacities`: names of their capacities.
    """

    classes: Mapping[str, frozenset[str]]
    attributes: Sequence[str]
    capacities: Sequence[str]


def tallies(groups: Sequence[NodeGroup]) -> Tallies:
    """The tallies of each request in all groups."""
    found: dict[tuple[str, str], list[RequestTally]] = {}
    for group in groups:
        for request in group.requests:
            found.setdefault((request.tally.claim, request.tally.request), []).append(request.tally)
    return found


def of_claim(editable: EditableClaim, known: Tallies, names: KnownNames, budget: QueryBudget) -> ChangeLists:
    """All changes of one claim, except those of its selectors."""
    for request in requests_of(editable):
        found = known.get((editable.claim.metadata.key, request.name), ())
        yield from budget.charge(REQUEST + len(found) + (MAX_RESULTS + len(request.source.tolerations)) * CHANGE)
        yield from _counts(request, found)
        yield from _capacities(request, found, names.capacities, budget)
        yield from _tolerations(request, found, budget)
        yield from _classes(request, names.classes, budget)
    yield from _constraints(editable, names.attributes, budget)


# --- requests ---------------------------------------------------------------------------------------------------------


def _counts(request: EditableRequest, found: Sequence[RequestTally]) -> Iterator[ChangeList]:
    most = request.source.count - 1
    if request.source.allocation_mode == "All":
        most = max((tally.offered for tally in found), default=0)
    candidates = [_count(request, count) for count in range(min(most, MAX_RESULTS), 0, -1)]
    if candidates:
        yield ChangeList(Order.COUNT, candidates, monotone=request.alternative is None)


def _count(request: EditableRequest, count: int) -> CandidateChange:
    source = request.source
    if source.allocation_mode == "All":
        text = f"request {counted(count, 'device')} instead of all in {request.label}"
        written = to_builtins(source) | {"allocationMode": "ExactCount", "count": count}
        return request.edit("count", "", written, text, f"{count} instead of all")
    text = f"request at most {counted(count, 'device')} instead of {source.count} in {request.label}"
    return request.edit("count", "/count", count, text, f"count <= {count}")


def _capacities(
    request: EditableRequest, found: Sequence[RequestTally], known: Sequence[str], budget: QueryBudget
) -> ChangeLists:
    asked = request.source.capacity.requests if request.source.capacity is not None else {}
    for name, amount in asked.items():
        yield from budget.charge(sum(len(tally.capacities) for tally in found) + 3 * AMOUNTS * CHANGE)
        offered = [capacity for tally in found for capacity in tally.capacities if capacity.name == name]
        texts = dict.fromkeys(text for capacity in offered for text in capacity.amounts)
        parts = (Quantity(amount.nano >> halved, amount.format) for halved in range(1, HALVED))
        whole = {part for part in parts if part.nano % 10**9 == 0}  # where a policy rounds up what devices have left
        amounts = sorted({Quantity.parse(text) for text in texts} | {Quantity.parse("1")} | whole, reverse=True)
        less = [_capacity(request, name, amount, other) for other in amounts if 0 < other.nano < amount.nano]
        if less:
            yield ChangeList(Order.CAPACITY, less[-AMOUNTS:], monotone=request.alternative is None)
        others = [other for other in known if other not in asked] if name not in known else []
        for other in (yield from near(name, others, budget, 2)):
            yield ChangeList(Order.NAME, [_renamed(request, name, other)])
        yield ChangeList(Order.NO_CAPACITY, [_renamed(request, name, "")])


def _capacity(request: EditableRequest, name: str, before: Quantity, amount: Quantity) -> CandidateChange:
    text = f"request at most {amount.text} of {name} instead of {before.text} in {request.label}"
    path = f"/capacity/requests/{_escaped(name)}"
    return request.edit("capacity", path, amount.text, text, f"{name} <= {amount.text}")


def _renamed(request: EditableRequest, name: str, other: str) -> CandidateChange:
    """The capacity under another name; removed if `other` is empty."""
    asked = dict(request.source.capacity.requests) if request.source.capacity is not None else {}
    amount = asked.pop(name)
    if other:
        asked[other] = amount
    short = f"capacity {name}: did you mean {other}?" if other else f"remove capacity {name} from {request.label}"
    text = f"{request.label}: {short}" if other else short
    written = {key: value.text for key, value in asked.items()}
    return request.edit("capacity", "/capacity/requests", written, text, short)


def _tolerations(request: EditableRequest, found: Sequence[RequestTally], budget: QueryBudget) -> ChangeLists:
    """Tolerations of one taint first, then of all taints that a tally has. Small sets come before large ones."""
    sets: dict[tuple[tuple[str, str, str], ...], None] = {}
    for tally in found:
        if tally.taints:
            sets[tuple((taint.key, taint.value, taint.effect) for taint in tally.taints)] = None
        yield from budget.charge(1 + len(tally.taints))
    room = MAX_TOLERATIONS - len(request.source.tolerations)
    several = sorted((taints for taints in sets if 1 < len(taints) <= room), key=len)
    singles = dict.fromkeys((taint,) for taints in sets for taint in taints if room > 0)
    chosen = (*islice(singles, TAINTS), *several[:TAINTS])
    if len(chosen) < len(singles) + len(several):
        budget.complete = False
    if chosen:
        yield ChangeList(
            Order.DEVICE_TOLERATION, LazySequence(len(chosen), lambda index: _toleration(request, chosen[index]))
        )


def _toleration(request: EditableRequest, taints: Sequence[tuple[str, str, str]]) -> CandidateChange:
    more = [
        DeviceToleration(key=key, operator="Equal" if value else "Exists", value=value, effect=effect)
        for key, value, effect in taints
    ]
    shown = ", ".join(taint_text(*taint) for taint in taints)
    alike = (each for each in request.source.tolerations if any(each.key == key for key, _, _ in taints))
    present = ", ".join(taint_text(each.key, each.value, each.effect).rstrip(":") for each in alike)
    text = f"add a toleration of {shown} to {request.label}{present and f', besides that of {present}'}"
    tolerations = to_builtins([*request.source.tolerations, *more])
    return request.edit(
        "toleration", "/tolerations", tolerations, text, f"tolerate {shown}", "add", {"tolerations": more}
    )


def _classes(request: EditableRequest, known: Mapping[str, frozenset[str]], budget: QueryBudget) -> ChangeLists:
    """Other classes that may select devices of the same driver. A class without known drivers may select any device."""
    now = request.source.device_class_name
    drivers = known.get(now)
    classes: list[str] = []
    for name, found in known.items():
        yield from budget.charge(1)
        if name != now and (not drivers or not found or found & drivers):
            classes.append(name)
    close, others = yield from nearest_first(now, classes, budget, CLASSES)
    yield from budget.charge(CLASSES * CHANGE + len(classes) // 4)
    misspelt = close if now not in known else []
    if misspelt:
        yield ChangeList(Order.MISTAKE, [_class(request, name, near=True) for name in misspelt])
    rest = [name for name in others if name not in misspelt]
    if len(rest) > CLASSES:
        budget.complete = False
    if rest:
        yield ChangeList(Order.CLASS, [_class(request, name, near=False) for name in rest[:CLASSES]])


def _class(request: EditableRequest, name: str, *, near: bool) -> CandidateChange:
    now = request.source.device_class_name
    if near:
        text = f"{request.label}: class {now} does not exist; did you mean {name}?"
        short = f"did you mean class {name}?"
    else:
        text, short = f"use class {name} instead of {now} in {request.label}", f"class {name}"
    return request.edit("class", "/deviceClassName", name, text, short)


# --- constraints ------------------------------------------------------------------------------------------------------


def _constraints(editable: EditableClaim, attributes: Sequence[str], budget: QueryBudget) -> ChangeLists:
    for index, constraint in enumerate(editable.claim.spec.devices.constraints):
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        now = constraint.match_attribute or constraint.distinct_attribute or ""
        path, where = f"/devices/constraints/{index}", f"claim {editable.entry}"
        _, others = yield from nearest_first(now, attributes, budget, 3)
        yield from budget.charge(ATTRIBUTES * CHANGE)
        candidates = [
            editable.edit(
                "constraint", f"{path}/{kind}", name, f"use {kind} {name} instead of {now} in {where}", f"{kind} {name}"
            )
            for name in others[:ATTRIBUTES]
            if name != now
        ]
        if candidates:
            yield ChangeList(Order.CONSTRAINT, candidates)
        text, short = f"remove {kind} {now} from {where}", f"without {kind} {now}"
        yield ChangeList(Order.NO_CONSTRAINT, [editable.edit("constraint", path, None, text, short, "remove")])


def _escaped(name: str) -> str:
    """As a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
