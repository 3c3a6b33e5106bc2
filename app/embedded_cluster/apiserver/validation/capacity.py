"""Field errors of the policies that say which amounts of a shared capacity can be requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver.statuses import JSON, Problem, duplicate, forbidden, invalid_value, required, too_many

MOST_VALUES: Final = 10


def policy_problems(policy: JSON, value: str, at: str) -> list[Problem]:
    """Problems of the requestPolicy of a capacity of `value`."""
    values, bounds, default = policy.get("validValues") or (), policy.get("validRange"), policy.get("default")
    if values and bounds is not None:
        both = 'cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(at, f"exactly one policy can be specified, {both}")]
    found: list[Problem] = []
    for chosen, name in ((values, "validValues"), (bounds, "validRange")):
        if chosen and default is None:
            found.append(required(f"{at}.default", f"required when {name} is defined"))
    capacity = Quantity.parse(value)
    if values:
        found += _values_problems(values, default, capacity, f"{at}.validValues")
    if bounds is not None:
        found += _range_problems(bounds, default, capacity, f"{at}.validRange")
    return found


def _values_problems(values: Sequence[str], default: str | None, capacity: Quantity, at: str) -> list[Problem]:
    if len(values) > MOST_VALUES:
        return [too_many(at, len(values), MOST_VALUES)]
    amounts = [Quantity.parse(value) for value in values]
    found = [
        invalid_value(f"{at}[{index}]", values[index], "values must be sorted in ascending order")
        for index in range(1, len(values))
        if amounts[index] < amounts[index - 1]
    ]
    found += [
        invalid_value(f"{at}[{index}]", values[index], f"option is larger than capacity value: {capacity}")
        for index, amount in enumerate(amounts)
        if capacity < amount
    ]
    found += [duplicate(f"{at}[{i}]", values[i]) for i, amount in enumerate(amounts) if amount in amounts[:i]]
    if default is not None and Quantity.parse(default) not in amounts:
        found.append(invalid_value(at, default, "default value is not valid according to the requestPolicy"))
    return found


def _range_problems(bounds: JSON, default: str | None, capacity: Quantity, at: str) -> list[Problem]:
    if bounds.get("min") is None:
        return [required(f"{at}.min", "required when validRange is defined")]
    least = Quantity.parse(bounds["min"])
    most = Quantity.parse(bounds["max"]) if bounds.get("max") is not None else None
    found: list[Problem] = []
    if capacity < least:
        found.append(invalid_value(f"{at}.min", bounds["min"], f"min is larger than capacity value: {capacity}"))
    if most is not None and capacity < most:
        found.append(invalid_value(f"{at}.max", bounds["max"], f"max is larger than capacity value: {capacity}"))
    if most is not None and most < least:
        found.append(invalid_value(f"{at}.max", bounds["min"], f"min is larger than max: {bounds['max']}"))
    if default is not None:
        wanted = Quantity.parse(default)
        if wanted < least:
            found.append(invalid_value(f"{at}.min", default, f"default is less than min: {bounds['min']}"))
        if most is not None and most < wanted:
            found.append(invalid_value(f"{at}.max", default, f"default is more than max: {bounds['max']}"))
    if bounds.get("step") is not None:
        found += _step_problems(bounds, default, capacity, at)
    return found


def _step_problems(bounds: JSON, default: str | None, capacity: Quantity, at: str) -> list[Problem]:
    """Steps are computed with whole numbers."""
    least, step = Quantity.parse(bounds["min"]), Quantity.parse(bounds["step"])
    where, found = f"{at}.step", []
    if capacity < least + step:
        found.append(
            invalid_value(where, bounds["step"], f"one step above min is larger than capacity value: {capacity}")
        )
    whole = step.value()
    detail = f"value is not a multiple of a given step ({bounds['step']}) from ({bounds['min']})"
    found += [
        invalid_value(where, amount, detail)
        for amount in (default, bounds.get("max"))
        if amount is not None and whole and (Quantity.parse(amount).value() - least.value()) % whole
    ]
    return found
