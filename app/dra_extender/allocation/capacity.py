"""Consumable capacity: how much a request takes of a device, and whether that is allowed.

Promises: exact arithmetic on immutable amounts. A request consumes an amount of every capacity that the device has,
also of capacities that it does not name. Names are compared as they are written; no domain is added. The comparison is
made for exclusive devices too, as a filter.

Rules: Kubernetes 1.36, structured/internal/incubating/consumable_capacity.go. Steps of ranges are computed in whole
numbers, as upstream does.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from dra_extender.devices.usage import NO_AMOUNTS, Amounts

Consumed = tuple[tuple[str, Quantity], ...]
"""What one share takes: (capacity name, amount), one entry for each capacity of the device."""


def consumed(capacity: Mapping[str, DeviceCapacity], requested: Mapping[str, Quantity]) -> Consumed | None:
    """What a request takes of a device; None when the device lacks a requested name, a policy forbids the amount, or
    the whole device has less.
    """
    if any(name not in capacity for name in requested):
        return None
    amounts: list[tuple[str, Quantity]] = []
    for name, offered in capacity.items():
        amount = _amount(offered, requested.get(name))
        if _violates(offered.request_policy, amount) or amount > offered.value:
            return None
        amounts.append((name, amount))
    return tuple(amounts)


def fits(
    capacity: Mapping[str, DeviceCapacity], takes: Consumed, allocated: Amounts, attempt: Amounts = NO_AMOUNTS
) -> bool:
    """Whether the share fits, given what is allocated and what this attempt took already."""
    return all(
        amount.nano + allocated.get(name, 0) + attempt.get(name, 0) <= capacity[name].value.nano
        for name, amount in takes
    )


def _amount(offered: DeviceCapacity, requested: Quantity | None) -> Quantity:
    policy = offered.request_policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else offered.value
    if policy is None:
        return requested
    if policy.valid_range is not None:
        return _rounded(policy.valid_range, requested)
    if policy.valid_values:
        return min((value for value in policy.valid_values if value >= requested), default=requested)
    return requested


def _rounded(valid: CapacityRequestPolicyRange, requested: Quantity) -> Quantity:
    """At least the minimum; with a step, the next amount that is a whole number of steps above it."""
    if valid.min is None:
        return requested
    if requested < valid.min:
        return valid.min
    step = valid.step.value() if valid.step is not None else 0
    if not step:
        return requested
    minimum = valid.min.value()
    return Quantity.of_value(minimum - (minimum - requested.value()) // step * step)


def _violates(policy: CapacityRequestPolicy | None, amount: Quantity) -> bool:
    if policy is None or amount == policy.default:
        return False
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > valid.max:
            return True
        step = valid.step.value() if valid.step is not None else 0
        return bool(step) and valid.min is not None and (amount.value() - valid.min.value()) % step != 0
    return bool(policy.valid_values) and all(amount != value for value in chain(policy.valid_values))
