"""Changes of a pod's claims that may help: fewer devices, less capacity, a toleration, another class or constraint.

Promises: only what the claims and the devices suggest; whether it helps is decided by who asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

import msgspec

from app.allocation.tally import RequestTally
from app.api.quantity import Quantity
from app.api.resource import MAX_RESULTS, CapacityRequirements, DeviceConstraint, DeviceToleration, ResourceClaim
from app.plurals import counted
from app.scheduling.diagnosis.edits import Candidate, Family, Place, Target, as_yaml, places, swapped, with_devices
from app.scheduling.diagnosis.report import NodeGroup

CLASSES = 8
ATTRIBUTES = 12
AMOUNTS = 16

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
    claim: ResourceClaim, target: Target, known: Tallies, classes: Classes, attributes: Sequence[str]
) -> Iterator[Family]:
    """The families of one claim, but those of its selectors. `attributes`: full names of what devices have."""
    for place in places(claim, target):
        found = known.get((claim.metadata.key, place.name), ())
        yield from _counts(place, found)
        yield from _capacities(place, found)
        yield from _tolerations(place, found)
        yield from _classes(place, classes)
    yield from _constraints(claim, target, attributes)


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
    change = place.target.change("count", f"{place.path}/count", count)
    if place.source.allocation_mode == "All":
        value = {"allocationMode": "ExactCount", "count": count}
        written = msgspec.to_builtins(place.source) | value
        change = place.target.change("count", place.path, written)
    said = text or f"ask {place.label} for at most {counted(count, 'device')} instead of {place.source.count}"
    return Candidate(said, f"count <= {count}", change, swapped(place.claim, claim))


def _capacities(place: Place, found: Sequence[RequestTally]) -> Iterator[Family]:
    asked = place.source.capacity.requests if place.source.capacity is not None else {}
    for name, amount in asked.items():
        told = [capacity for tally in found for capacity in tally.capacities if capacity.name == name]
        texts = dict.fromkeys(text for capacity in told for text in capacity.amounts)
        amounts = sorted({Quantity.parse(text) for text in texts} | {Quantity.parse("1")}, reverse=True)
        less = [_capacity(place, name, other) for other in amounts if 0 < other.nano < amount.nano]
        if less:
            yield Family(11, less[-AMOUNTS:], monotone=place.alternative is None)
        others = [item.name for tally in found for item in tally.capacities if item.name not in asked]
        for other in get_close_matches(name, list(dict.fromkeys(others)), 2):
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
    text = f"capacity {name}: did you mean {other}?" if other else f"ask {place.label} for no {name}"
    return Candidate(
        f"{place.label}: {text}" if other else text,
        text,
        change,
        swapped(place.claim, place.written(capacity=CapacityRequirements(asked) if asked else None)),
    )


def _tolerations(place: Place, found: Sequence[RequestTally]) -> Iterator[Family]:
    sets = dict.fromkeys(
        tuple((taint.key, taint.value, taint.effect) for taint in tally.taints) for tally in found if tally.taints
    )
    singles = dict.fromkeys((taint,) for taints in sets for taint in taints)
    candidates = [_toleration(place, taints) for taints in (*singles, *(taints for taints in sets if len(taints) > 1))]
    if candidates:
        yield Family(20, candidates)


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
        as_yaml({"tolerations": more}),
    )


def _classes(place: Place, known: Classes) -> Iterator[Family]:
    """Classes for devices of the same driver; all of them where the class has no devices."""
    now = place.source.device_class_name
    drivers = known.get(now)
    classes = [name for name, found in known.items() if not drivers or not found or found & drivers]
    near = get_close_matches(now, classes, CLASSES)
    others = [*near, *(name for name in classes if name not in near)]
    candidates = [(name, _class(place, name, near=name in near and now not in known)) for name in others if name != now]
    misspelt = [found for name, found in candidates[:CLASSES] if now not in known and name in near]
    if misspelt:
        yield Family(0, misspelt)
    if candidates:
        yield Family(40, [found for _, found in candidates[:CLASSES] if found not in misspelt])


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


def _constraints(claim: ResourceClaim, target: Target, attributes: Sequence[str]) -> Iterator[Family]:
    for index, constraint in enumerate(claim.spec.devices.constraints):
        now = constraint.match_attribute or constraint.distinct_attribute or ""
        near = get_close_matches(now, attributes, 3)
        others = [*near, *(name for name in attributes if name not in near)]
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
