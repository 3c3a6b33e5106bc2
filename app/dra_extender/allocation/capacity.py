"""Consumable capacity: how much a request takes of a device, and whether that is allowed.

Promises: exact arithmetic on immutable amounts. A request consumes an amount of every capacity that the device has,
also of capacities that it does not name. Names are compared as they are written; no domain is added. The comparison is
made for exclusive devices too, as a filter.

Rules: Kubernetes 1.36 and 1.37, structured/internal/incubating/consumable_capacity.go. Steps of ranges are computed in
whole numbers, and with the gate DRAFractionalCapacityRange in thousandths where all amounts of the range are such. In
1.37 an amount that cannot be computed is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from dra_extender.devices.usage import NO_AMOUNTS, Amounts

_MILLI: Final = 10**6
_WHOLE: Final = 10**9
_MAX: Final = 2**63 - 1

Consumed = tuple[tuple[str, Quantity], ...]
"""What one share takes: (capacity name, amount), one entry for each capacity of the device."""


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
    amounts = [amount.nano for amount in (valid.min, valid.max, valid.step) if amount is not None]
    milli = valid.step is not None and valid.step.nano >= _MILLI and not any(nano % _MILLI for nano in amounts)
    return _MILLI if milli and features.DRAFractionalCapacityRange and max(amounts) <= _MAX * _MILLI else _WHOLE


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
