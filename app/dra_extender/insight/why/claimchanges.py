"""Changes of a pod's claims: fewer devices, less capacity, a toleration, another class or constraint.

Promises: all changes are derived from the claims and the devices. `remedies` verifies whether a change helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.core import taint_text
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    MAX_RESULTS,
    MAX_TOLERATIONS,
    CapacityRequirements,
    DeviceConstraint,
    DeviceToleration,
    ResourceClaim,
)
from dra_extender.insight.why.candidates import (
    Apply,
    CandidateChange,
    EditableRequest,
    Families,
    Family,
    Target,
    claim_becomes,
    near,
    nearest_first,
    replaced,
    requests_of,
    with_devices,
)
from dra_extender.insight.why.report import NodeGroup
from dra_extender.plurals import counted
from dra_extender.scheduling.turns import LazySequence, QueryBudget

CLASSES = 8
ATTRIBUTES = 12
AMOUNTS = 16
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
    that devices have.
    """

    classes: Mapping[str, frozenset[str]]
    attributes: Sequence[str]


def tallies(groups: Sequence[NodeGroup]) -> Tallies:
    """The tallies of each request in all groups."""
    found: dict[tuple[str, str], list[RequestTally]] = {}
    for group in groups:
        for request in group.requests:
            found.setdefault((request.tally.claim, request.tally.request), []).append(request.tally)
    return found


def of_claim(claim: ResourceClaim, target: Target, known: Tallies, names: KnownNames, budget: QueryBudget) -> Families:
    """The families of one claim, except those of its selectors."""
    for request in requests_of(claim, target):
        found = known.get((claim.metadata.key, request.name), ())
        yield from budget.charge(REQUEST + len(found) + (MAX_RESULTS + len(request.source.tolerations)) * CHANGE)
        yield from _counts(request, found)
        yield from _capacities(request, found, budget)
        yield from _tolerations(request, found, budget)
        yield from _classes(request, names.classes, budget)
    yield from _constraints(claim, target, names.attributes, budget)


# --- requests ---------------------------------------------------------------------------------------------------------


def _counts(request: EditableRequest, found: Sequence[RequestTally]) -> Iterator[Family]:
    most = request.source.count - 1
    if request.source.allocation_mode == "All":
        most = max((tally.offered for tally in found), default=0)
    candidates = [_count(request, count) for count in range(min(most, MAX_RESULTS), 0, -1)]
    if candidates:
        yield Family(10, candidates, monotone=request.alternative is None)


def _count(request: EditableRequest, count: int) -> CandidateChange:
    if request.source.allocation_mode == "All":
        written = msgspec.to_builtins(request.source) | {"allocationMode": "ExactCount", "count": count}
        change, short = request.change("count", "", written), f"{count} instead of all"
        text = f"request {counted(count, 'device')} instead of all in {request.label}"
    else:
        change, short = request.change("count", "/count", count), f"count <= {count}"
        text = f"request at most {counted(count, 'device')} instead of {request.source.count} in {request.label}"
    return request.candidate(text, short, change, count=count, allocation_mode="ExactCount")


def _capacities(request: EditableRequest, found: Sequence[RequestTally], budget: QueryBudget) -> Families:
    asked = request.source.capacity.requests if request.source.capacity is not None else {}
    for name, amount in asked.items():
        yield from budget.charge(sum(len(tally.capacities) for tally in found) + 3 * AMOUNTS * CHANGE)
        offered = [capacity for tally in found for capacity in tally.capacities if capacity.name == name]
        texts = dict.fromkeys(text for capacity in offered for text in capacity.amounts)
        amounts = sorted({Quantity.parse(text) for text in texts} | {Quantity.parse("1")}, reverse=True)
        less = [_capacity(request, name, other) for other in amounts if 0 < other.nano < amount.nano]
        if less:
            yield Family(11, less[-AMOUNTS:], monotone=request.alternative is None)
        others = [item.name for tally in found for item in tally.capacities if item.name not in asked]
        for other in (yield from near(name, dict.fromkeys(others), budget, 2)):
            yield Family(1, [_renamed(request, name, other)])
        yield Family(14, [_renamed(request, name, "")])


def _capacity(request: EditableRequest, name: str, amount: Quantity) -> CandidateChange:
    asked = dict(request.source.capacity.requests) if request.source.capacity is not None else {}
    before, asked[name] = asked[name], amount
    return request.candidate(
        f"request at most {amount.text} of {name} instead of {before.text} in {request.label}",
        f"{name} <= {amount.text}",
        request.change("capacity", f"/capacity/requests/{_escaped(name)}", amount.text),
        capacity=CapacityRequirements(asked),
    )


def _renamed(request: EditableRequest, name: str, other: str) -> CandidateChange:
    """The capacity under another name; removed if `other` is empty."""
    asked = dict(request.source.capacity.requests) if request.source.capacity is not None else {}
    amount = asked.pop(name)
    if other:
        asked[other] = amount
    change = request.change("capacity", "/capacity/requests", {key: value.text for key, value in asked.items()})
    short = f"capacity {name}: did you mean {other}?" if other else f"remove capacity {name} from {request.label}"
    text = f"{request.label}: {short}" if other else short
    return request.candidate(text, short, change, capacity=CapacityRequirements(asked) if asked else None)


def _tolerations(request: EditableRequest, found: Sequence[RequestTally], budget: QueryBudget) -> Families:
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
        yield Family(20, LazySequence(len(chosen), lambda index: _toleration(request, chosen[index])))


def _toleration(request: EditableRequest, taints: Sequence[tuple[str, str, str]]) -> CandidateChange:
    more = [
        DeviceToleration(key=key, operator="Equal" if value else "Exists", value=value, effect=effect)
        for key, value, effect in taints
    ]
    tolerations = (*request.source.tolerations, *more)
    shown = ", ".join(taint_text(*taint) for taint in taints)
    return request.candidate(
        f"add a toleration of {shown} to {request.label}",
        f"tolerate {shown}",
        request.change("toleration", "/tolerations", msgspec.to_builtins(list(tolerations)), "add"),
        {"tolerations": more},
        tolerations=tolerations,
    )


def _classes(request: EditableRequest, known: Mapping[str, frozenset[str]], budget: QueryBudget) -> Families:
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
        yield Family(0, [_class(request, name, near=True) for name in misspelt])
    rest = [name for name in others if name not in misspelt]
    if len(rest) > CLASSES:
        budget.complete = False
    if rest:
        yield Family(40, [_class(request, name, near=False) for name in rest[:CLASSES]])


def _class(request: EditableRequest, name: str, *, near: bool) -> CandidateChange:
    now = request.source.device_class_name
    change = request.change("class", "/deviceClassName", name)
    if near:
        text = f"{request.label}: class {now} does not exist; did you mean {name}?"
        short = f"did you mean class {name}?"
    else:
        text, short = f"use class {name} instead of {now} in {request.label}", f"class {name}"
    return request.candidate(text, short, change, device_class_name=name)


# --- constraints ------------------------------------------------------------------------------------------------------


def _constraints(claim: ResourceClaim, target: Target, attributes: Sequence[str], budget: QueryBudget) -> Families:
    for index, constraint in enumerate(claim.spec.devices.constraints):
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        field = "match_attribute" if constraint.match_attribute else "distinct_attribute"
        now = constraint.match_attribute or constraint.distinct_attribute or ""
        path = f"/devices/constraints/{index}"
        _, others = yield from nearest_first(now, attributes, budget, 3)
        yield from budget.charge(ATTRIBUTES * CHANGE)
        candidates = [
            CandidateChange(
                f"use {kind} {name} instead of {now} in claim {target.entry}",
                f"{kind} {name}",
                target.change("constraint", f"{path}/{kind}", name),
                _with_constraint(claim, index, replace(constraint, **{field: name})),
            )
            for name in others[:ATTRIBUTES]
            if name != now
        ]
        if candidates:
            yield Family(30, candidates)
        text = f"remove {kind} {now} from claim {target.entry}"
        change = target.change("constraint", path, None, "remove")
        yield Family(31, [CandidateChange(text, f"without {kind} {now}", change, _with_constraint(claim, index))])


def _with_constraint(claim: ResourceClaim, index: int, *new: DeviceConstraint) -> Apply:
    """Replaces the constraint by `new`. Removes it if there is no `new` one."""
    constraints = replaced(claim.spec.devices.constraints, index, *new)
    return claim_becomes(claim, with_devices(claim, constraints=constraints))


def _escaped(name: str) -> str:
    """As a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
