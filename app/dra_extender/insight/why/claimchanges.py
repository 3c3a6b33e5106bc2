"""Changes of a pod's claims that may help: fewer devices, less capacity, a toleration, another class or constraint.

Promises: only what the claims and the devices suggest; whether it helps is decided by who asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    MAX_RESULTS,
    MAX_TOLERATIONS,
    CapacityRequirements,
    DeviceConstraint,
    DeviceToleration,
    ResourceClaim,
)
from dra_extender.insight.why.edits import (
    Candidate,
    Families,
    Family,
    Place,
    Target,
    places,
    swapped,
    with_devices,
)
from dra_extender.insight.why.nearness import near, nearest_first
from dra_extender.insight.why.report import NodeGroup
from dra_extender.plurals import counted
from dra_extender.scheduling.slices import LazySequence, QueryBudget

CLASSES = 8
ATTRIBUTES = 12
AMOUNTS = 16
TAINTS = 64
"""Sets of taints of which each is tolerated in turn."""
PLACE: Final = 50
CHANGE: Final = 20
"""Units of work that a request takes, and a change of it."""

Classes = Mapping[str, frozenset[str]]
"""By name the drivers whose devices a class selects, as far as that is known."""

Tallies = Mapping[tuple[str, str], Sequence[RequestTally]]
"""By claim (namespace/name) and request: what was found on the nodes."""


def tallies(groups: Sequence[NodeGroup]) -> Tallies:
    """What the groups say of each request."""
    found: dict[tuple[str, str], list[RequestTally]] = {}
    for group in groups:
        for request in group.requests:
            found.setdefault((request.tally.claim, request.tally.request), []).append(request.tally)
    return found


def of_claim(
    claim: ResourceClaim,
    target: Target,
    known: Tallies,
    classes: Classes,
    attributes: Sequence[str],
    budget: QueryBudget,
) -> Families:
    """The families of one claim, but those of its selectors. `attributes`: full names of what devices have."""
    for place in places(claim, target):
        found = known.get((claim.metadata.key, place.name), ())
        if budget.must_yield(PLACE + len(found) + (MAX_RESULTS + len(place.source.tolerations)) * CHANGE):
            yield None
        yield from _counts(place, found)
        yield from _capacities(place, found, budget)
        yield from _tolerations(place, found, budget)
        yield from _classes(place, classes, budget)
    yield from _constraints(claim, target, attributes, budget)


# --- requests ---------------------------------------------------------------------------------------------------------


def _counts(place: Place, found: Sequence[RequestTally]) -> Iterator[Family]:
    source = place.source
    if source.allocation_mode == "All":
        most = min(max((tally.offered for tally in found), default=0), MAX_RESULTS)
        candidates = [
            _count(place, count, f"ask {place.label} for {count} instead of all") for count in range(most, 0, -1)
        ]
    else:
        most = min(source.count - 1, MAX_RESULTS)  # a claim gets no more, whatever the number that is written
        candidates = [_count(place, count, "") for count in range(most, 0, -1)]
    if candidates:
        yield Family(10, candidates, monotone=place.alternative is None)


def _count(place: Place, count: int, text: str) -> Candidate:
    claim = place.written(count=count, allocation_mode="ExactCount")
    short = f"count <= {count}"
    change = place.target.change("count", f"{place.path}/count", count)
    if place.source.allocation_mode == "All":
        value = {"allocationMode": "ExactCount", "count": count}
        written = msgspec.to_builtins(place.source) | value
        change = place.target.change("count", place.path, written)
        short = f"{count} instead of all"
    said = text or f"ask {place.label} for at most {counted(count, 'device')} instead of {place.source.count}"
    return Candidate(said, short, change, swapped(place.claim, claim))


def _capacities(place: Place, found: Sequence[RequestTally], budget: QueryBudget) -> Families:
    asked = place.source.capacity.requests if place.source.capacity is not None else {}
    for name, amount in asked.items():
        if budget.must_yield(sum(len(tally.capacities) for tally in found) + 3 * AMOUNTS * CHANGE):
            yield None
        told = [capacity for tally in found for capacity in tally.capacities if capacity.name == name]
        texts = dict.fromkeys(text for capacity in told for text in capacity.amounts)
        amounts = sorted({Quantity.parse(text) for text in texts} | {Quantity.parse("1")}, reverse=True)
        less = [_capacity(place, name, other) for other in amounts if 0 < other.nano < amount.nano]
        if less:
            yield Family(11, less[-AMOUNTS:], monotone=place.alternative is None)
        others = [item.name for tally in found for item in tally.capacities if item.name not in asked]
        for other in (yield from near(name, dict.fromkeys(others), budget, 2)):
            yield Family(1, [_renamed(place, name, other)])
        yield Family(14, [_renamed(place, name, "")])


def _capacity(place: Place, name: str, amount: Quantity) -> Candidate:
    asked = dict(place.source.capacity.requests) if place.source.capacity is not None else {}
    before, asked[name] = asked[name], amount
    change = place.target.change("capacity", f"{place.path}/capacity/requests/{_escaped(name)}", amount.text)
    return Candidate(
        f"ask {place.label} for at most {amount.text} of {name} instead of {before.text}",
        f"{name} <= {amount.text}",
        change,
        swapped(place.claim, place.written(capacity=CapacityRequirements(asked))),
    )


def _renamed(place: Place, name: str, other: str) -> Candidate:
    """The capacity under another name, or not asked for at all."""
    asked = dict(place.source.capacity.requests) if place.source.capacity is not None else {}
    amount = asked.pop(name)
    if other:
        asked[other] = amount
    value = {key: value.text for key, value in asked.items()}
    change = place.target.change("capacity", f"{place.path}/capacity/requests", value)
    text = f"capacity {name}: did you mean {other}?" if other else f"drop capacity {name} from {place.label}"
    return Candidate(
        f"{place.label}: {text}" if other else text,
        text,
        change,
        swapped(place.claim, place.written(capacity=CapacityRequirements(asked) if asked else None)),
    )


def _tolerations(place: Place, found: Sequence[RequestTally], budget: QueryBudget) -> Families:
    """Of one taint each, then of all that a node has: those that the fewest others stand beside first."""
    sets: dict[tuple[tuple[str, str, str], ...], None] = {}
    for tally in found:
        if tally.taints:
            sets[tuple((taint.key, taint.value, taint.effect) for taint in tally.taints)] = None
        if budget.must_yield(1 + len(tally.taints)):
            yield None
    room = MAX_TOLERATIONS - len(place.source.tolerations)
    several = sorted((taints for taints in sets if 1 < len(taints) <= room), key=len)
    singles = dict.fromkeys((taint,) for taints in sets for taint in taints if room > 0)
    chosen = (*islice(singles, TAINTS), *several[:TAINTS])
    if len(chosen) < len(singles) + len(several):
        budget.complete = False
    if chosen:
        yield Family(20, LazySequence(len(chosen), lambda index: _toleration(place, chosen[index])))


def _toleration(place: Place, taints: Sequence[tuple[str, str, str]]) -> Candidate:
    more = [
        DeviceToleration(key=key, operator="Equal" if value else "Exists", value=value, effect=effect)
        for key, value, effect in taints
    ]
    tolerations = (*place.source.tolerations, *more)
    said = ", ".join(f"{key}={value}:{effect}" if value else f"{key}:{effect}" for key, value, effect in taints)
    change = place.target.change(
        "toleration", f"{place.path}/tolerations", msgspec.to_builtins(list(tolerations)), "add"
    )
    return Candidate(
        f"let {place.label} tolerate {said}",
        f"tolerate {said}",
        change,
        swapped(place.claim, place.written(tolerations=tolerations)),
        {"tolerations": more},
    )


def _classes(place: Place, known: Classes, budget: QueryBudget) -> Families:
    """Classes for devices of the same driver; all of them where the class has no devices."""
    now = place.source.device_class_name
    drivers = known.get(now)
    classes: list[str] = []
    for name, found in known.items():
        if budget.must_yield(1):
            yield None
        if name != now and (not drivers or not found or found & drivers):
            classes.append(name)
    close, others = yield from nearest_first(now, classes, budget, CLASSES)
    if budget.must_yield(CLASSES * CHANGE + len(classes) // 4):
        yield None
    misspelt = close if now not in known else []
    if misspelt:
        yield Family(0, [_class(place, name, near=True) for name in misspelt])
    rest = [name for name in others if name not in misspelt]
    if len(rest) > CLASSES:
        budget.complete = False
    if rest:
        yield Family(40, [_class(place, name, near=False) for name in rest[:CLASSES]])


def _class(place: Place, name: str, *, near: bool) -> Candidate:
    now = place.source.device_class_name
    change = place.target.change("class", f"{place.path}/deviceClassName", name)
    text = (
        f"{place.label}: class {now} does not exist; did you mean {name}?"
        if near
        else (f"ask {place.label} for class {name} instead of {now}")
    )
    short = f"did you mean class {name}?" if near else f"class {name}"
    return Candidate(text, short, change, swapped(place.claim, place.written(device_class_name=name)))


# --- constraints ------------------------------------------------------------------------------------------------------


def _constraints(claim: ResourceClaim, target: Target, attributes: Sequence[str], budget: QueryBudget) -> Families:
    for index, constraint in enumerate(claim.spec.devices.constraints):
        now = constraint.match_attribute or constraint.distinct_attribute or ""
        _, others = yield from nearest_first(now, attributes, budget, 3)
        if budget.must_yield(ATTRIBUTES * CHANGE):
            yield None
        candidates = [_compared(claim, target, index, constraint, name) for name in others[:ATTRIBUTES] if name != now]
        if candidates:
            yield Family(30, candidates)
        rest = (*claim.spec.devices.constraints[:index], *claim.spec.devices.constraints[index + 1 :])
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        yield Family(
            31,
            [
                Candidate(
                    f"drop {kind} {now} from claim {target.entry}",
                    f"without {kind} {now}",
                    target.change("constraint", f"/devices/constraints/{index}", None, "remove"),
                    swapped(claim, with_devices(claim, constraints=rest)),
                )
            ],
        )


def _compared(claim: ResourceClaim, target: Target, index: int, constraint: DeviceConstraint, name: str) -> Candidate:
    """The constraint about another attribute."""
    kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
    field = "match_attribute" if constraint.match_attribute else "distinct_attribute"
    now = constraint.match_attribute or constraint.distinct_attribute
    constraints = list(claim.spec.devices.constraints)
    constraints[index] = msgspec.structs.replace(constraint, **{field: name})
    return Candidate(
        f"claim {target.entry}: {kind} {name} instead of {now}",
        f"{kind} {name}",
        target.change("constraint", f"/devices/constraints/{index}/{kind}", name),
        swapped(claim, with_devices(claim, constraints=tuple(constraints))),
    )


def _escaped(name: str) -> str:
    """As a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
