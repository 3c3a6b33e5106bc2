"""Which devices a request may have at all: class and request selectors, node match, taints, capacity as a filter.

Promises: an answer depends only on the device's model and the filter. So it is computed once for all models with equal
signatures for the filter, and each model keeps it. A view keeps the answers for all its devices. An error belongs to
its device: the search reports the error when it reaches the device.

Capacity is exact arithmetic on immutable amounts. A request consumes an amount of every capacity that the device has,
also of capacities that it does not name. Names are compared as they are written; no domain is added. The comparison is
made for exclusive devices too, as a filter.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (isSelectable, allocateDevice), and for
capacity 1.36 and 1.37, structured/internal/incubating/consumable_capacity.go. Steps of ranges are computed in whole
numbers, and with the gate DRAFractionalCapacityRange in thousandths where all amounts of the range are such. In 1.37 an
amount that cannot be computed is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, Literal

import msgspec

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.plan import Rule
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.selectors import FilterSelector, device_view, filter_selectors
from dra_extender.allocation.signatures import AttributeReads, AttributeSignatures
from dra_extender.api.core import tolerates
from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
    DeviceTaint,
    DeviceToleration,
)
from dra_extender.devices.models import REMEMBERED, DeviceModel, Traits
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import NO_AMOUNTS, Amounts

COMPARED: Final = 4
"""Taints that are compared with a toleration per unit of work."""
_MILLI: Final = 10**6
_WHOLE: Final = 10**9
_MAX: Final = 2**63 - 1

Consumed = tuple[tuple[str, Quantity], ...]
"""What one share takes: (capacity name, amount), one entry for each capacity of the device."""


class EvaluationFailure(msgspec.Struct, frozen=True):
    """Why evaluating a device failed. `index` counts the selectors of the class or of the request."""

    source: Literal["class", "request", "node", "capacity"]
    index: int
    text: str


class Suitability(msgspec.Struct, frozen=True):
    """The answer of a filter for a device model.

    `lost` is the first rule that takes it away, None when it may be used. `selected`: by the selectors; `takes`: what a
    share would consume, None when the capacity cannot be had.
    """

    lost: Rule | None
    selected: bool
    takes: Consumed | None = None
    failure: EvaluationFailure | None = None


class Candidates(msgspec.Struct, frozen=True):
    """The answers of a filter for the devices of a view, as masks. `usable` may be allocated as far as static rules go;
    `collected` are the devices that mode All takes.
    """

    selected: int
    collected: int
    usable: int
    failures: dict[int, EvaluationFailure]
    failing: int


_NOT_SELECTED: Final[Mapping[Rule, Suitability]] = {
    "binding conditions": Suitability("binding conditions", False),
    "class": Suitability("class", False),
    "selector": Suitability("selector", False),
}

_PLAIN: Final = Suitability(None, True, ())


def candidates(view: NodeView, filter: DeviceFilter, budget: WorkBudget = UNLIMITED) -> Candidates:
    """The devices of the view that pass the filter. The view remembers them. Raises TurnSpent; raises Deferred after
    all requests to workers are deferred.
    """
    found: Candidates | None = view.masks.get(filter)
    return found if found is not None else view.remember(filter, _candidates(view, filter, budget), filter.room)


def _candidates(view: NodeView, filter: DeviceFilter, budget: WorkBudget) -> Candidates:
    selected = collected = usable = 0
    failures: dict[int, EvaluationFailure] = {}
    waiting = ""
    budget.spend(len(view.devices))
    bit = 1
    for index, device in enumerate(view.devices):
        try:
            found = suitability(device.model, filter, budget)
        except Deferred as deferred:
            waiting = str(deferred)
            continue
        if found.selected:
            selected |= bit
            if found.takes is not None:
                collected |= bit
            if found.lost is None:
                usable |= bit
        elif found.failure is not None:
            failures[index] = found.failure
        bit <<= 1
    if waiting:
        raise Deferred(waiting)
    for index, problem in view.unmatchable.items():
        if selected >> index & 1:
            failures[index] = EvaluationFailure("node", 0, problem)
    gone = view.elsewhere | sum(1 << index for index in failures)
    return Candidates(
        selected & ~gone, collected & ~gone, usable & ~gone, failures, sum(1 << index for index in failures)
    )


def suitability(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget = UNLIMITED) -> Suitability:
    """The answer of the filter for the model; remembered by the model. Raises TurnSpent and Deferred."""
    found: Suitability | None = model.memo.get(filter)
    return found if found is not None else model.remember(filter, _known(model, filter, budget), filter.room)


def _known(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget) -> Suitability:
    """The answer by signature, if the reads of the filter's selectors are known. Raises TurnSpent and Deferred."""
    signatures = filter.signatures if filter.signatures is not None else _signatures(filter)
    if signatures is None:
        return _suitability(model, filter, budget)
    signature = signatures.of(model)
    found: Suitability | None = filter.answers.get(signature)
    if found is None:
        found = _suitability(model, filter, budget)
        if found.failure is None:
            if len(filter.answers) >= REMEMBERED:
                filter.answers.clear()
            filter.answers[signature] = found
    return found


def _signatures(filter: DeviceFilter) -> AttributeSignatures | None:
    """None as long as the reads of some selector are not known, or are everything."""
    reads: set[tuple[str, str]] = set()
    for expression in (*filter.class_selectors, *filter.selectors):
        found: AttributeReads = filter.reads.get(expression)
        if found is None:
            return None
        reads |= found
    filter.signatures = signatures = AttributeSignatures(frozenset(reads))
    return signatures


def _suitability(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget) -> Suitability:
    features = filter.features
    traits = model.traits
    off = bool(traits.binding_conditions) and not features.binding_conditions
    selectors: tuple[FilterSelector, ...]
    selectors = filter.compiled if filter.compiled is not None else filter_selectors(filter, budget)
    waiting = ""
    for selector in selectors:
        if off and selector.source != "class":
            continue  # the class is asked, so that a device of another class is not reported for this one
        try:
            answer = selector.matches(filter, device_view(model, features), budget)
        except Deferred as deferred:
            waiting = str(deferred)
            continue
        if waiting:
            continue  # the loop goes on only to defer the requests for the other selectors
        if answer is False:
            return _NOT_SELECTED["class" if selector.source == "class" else "selector"]
        if answer is not True and not off:
            return Suitability("error", False, None, EvaluationFailure(selector.source, selector.index, answer))
    if waiting:
        raise Deferred(waiting)
    if off:
        return _NOT_SELECTED["binding conditions"]
    takes: Consumed | None = ()
    if features.DRAConsumableCapacity and (traits.capacity or filter.capacity):
        try:
            takes = consumed(traits.capacity, filter.capacity, features)
        except AmountError as problem:
            return Suitability("error", False, None, EvaluationFailure("capacity", 0, str(problem)))
    if comparisons := len(traits.taints) * len(filter.tolerations) // COMPARED:
        budget.spend(comparisons)
    lost = _loss(traits, filter, takes)
    return _PLAIN if lost is None and takes == () else Suitability(lost, True, takes)


def _loss(traits: Traits, filter: DeviceFilter, takes: Consumed | None) -> Rule | None:
    if takes is None:
        return "capacity"
    if traits.partition and not filter.features.DRAPartitionableDevices:
        return "counters"
    if traits.taints and filter.features.DRADeviceTaints and not tolerated(traits.taints, filter.tolerations):
        return "taint"
    return None


def tolerated(taints: Sequence[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether each taint, all with an active effect, is tolerated by at least one toleration. The caller charges the
    product of both, because rules can add any number of taints.
    """
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def losses(view: NodeView, filter: DeviceFilter, budget: WorkBudget = UNLIMITED) -> Mapping[Rule, int]:
    """The devices that the static rules leave out, by the rule that takes them away first. The view remembers them.
    Raises what the budget does.
    """
    key = "losses", filter
    known: Mapping[Rule, int] | None = view.masks.get(key)
    if known is not None:
        return known
    lost: dict[Rule, int] = {}
    budget.spend(len(view.devices))
    for index, device in enumerate(view.devices):
        found = suitability(device.model, filter, budget)
        rule = found.lost or (None if found.selected else "selector")
        if found.failure is not None or (found.selected and index in view.unmatchable):
            rule = "error"
        elif found.selected and view.elsewhere >> index & 1:
            rule = "node"
        if rule is not None:
            lost[rule] = lost.get(rule, 0) | 1 << index
    return view.remember(key, lost, filter.room)


# --- consumable capacity ----------------------------------------------------------------------------------------------


class AmountError(ValueError):
    """An amount that Kubernetes 1.37 cannot compute."""


def consumed(
    capacity: Mapping[str, DeviceCapacity], requested: Mapping[str, Quantity], features: FeatureGates
) -> Consumed | None:
    """What a request takes of a device; None when the device lacks a requested name, a policy forbids the amount, or
    the whole device has less. An amount below zero would free what others hold: None. Raises AmountError, with the
    rules of 1.37.
    """
    if any(name not in capacity for name in requested):
        return None
    amounts: dict[str, Quantity] = {}
    for name, offered in sorted(capacity.items()) if features.is_1_37 else capacity.items():
        try:
            amounts[name] = amount = _amount(offered, requested.get(name), features)
            if amount.nano < 0:
                raise AmountError("capacity value is negative")
        except AmountError as problem:
            if not features.is_1_37:
                return None
            raise AmountError(f'capacity "{name}": {problem}') from None
    for name, amount in amounts.items():
        offered = capacity[name]
        if _violates(offered.request_policy, amount, features) or amount > offered.value:
            return None
    return tuple(amounts.items())


def fits(
    capacity: Mapping[str, DeviceCapacity], takes: Consumed, allocated: Amounts, attempt: Amounts = NO_AMOUNTS
) -> bool:
    """Whether the share fits, given what is allocated and what this attempt took already."""
    return all(
        amount.nano + allocated.get(name, 0) + attempt.get(name, 0) <= capacity[name].value.nano
        for name, amount in takes
    )


def _amount(offered: DeviceCapacity, requested: Quantity | None, features: FeatureGates) -> Quantity:
    policy = offered.request_policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else offered.value
    if policy is None:
        return requested
    if policy.valid_range is not None:
        return _rounded(policy.valid_range, requested, features)
    if policy.valid_values:
        return min((value for value in policy.valid_values if value >= requested), default=requested)
    return requested


def _unit(valid: CapacityRequestPolicyRange, features: FeatureGates) -> int:
    """The nano units in which the range is computed."""
    amounts = [amount.nano for amount in (valid.min, valid.max, valid.step) if amount is not None]
    milli = valid.step is not None and valid.step.nano >= _MILLI and not any(nano % _MILLI for nano in amounts)
    return _MILLI if milli and features.fractional_ranges and max(amounts) <= _MAX * _MILLI else _WHOLE


def _rounded(valid: CapacityRequestPolicyRange, requested: Quantity, features: FeatureGates) -> Quantity:
    """At least the minimum; with a step, the next whole number of steps above it. Raises AmountError."""
    if valid.min is None:
        return requested
    if requested < valid.min:
        return valid.min
    if valid.step is None or not valid.step:
        return requested
    unit = _unit(valid, features)
    step, minimum, asked = (amount.value(unit) for amount in (valid.step, valid.min, requested))
    rounded = minimum - (minimum - asked) // step * step
    if not features.is_1_37:
        return Quantity.of_value(rounded)
    cannot = "capacity request cannot be represented in the device's range arithmetic"
    if unit == _MILLI and (requested.nano % unit or asked > _MAX):
        raise AmountError(f"{cannot}: request {requested} is not a representable milli value")
    if requested.nano > _MAX * unit:
        raise AmountError(f"{cannot}: request {requested} exceeds MaxInt64")
    if rounded > _MAX and minimum >= 0:
        passed = "the milli-value range" if unit == _MILLI else "MaxInt64"
        raise AmountError(f"{cannot}: rounding request {requested} up to the next step passes {passed}")
    scale = -3 if rounded * unit % _WHOLE else 0
    return Quantity(rounded * unit, valid.step.format, scale=scale, fast=True)


def _violates(policy: CapacityRequestPolicy | None, amount: Quantity, features: FeatureGates) -> bool:
    if policy is None or amount == policy.default:
        return False
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > valid.max:
            return True
        if valid.step is None or not valid.step or valid.min is None:
            return False
        unit = _unit(valid, features)
        step, minimum, asked = (each.value(unit) for each in (valid.step, valid.min, amount))
        return (unit == _MILLI and amount.nano % unit != 0) or (asked - minimum) % step != 0
    return bool(policy.valid_values) and all(amount != value for value in chain(policy.valid_values))
