"""Field errors of resource slices and the devices in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid_value,
    required,
    too_long,
    too_many,
)
from embedded_cluster.apiserver.validation.claims import binding_condition_problems
from embedded_cluster.apiserver.validation.parts import (
    driver_problems,
    name_problems,
    pool_problems,
    qualified_problems,
    required_name_problems,
    set_problems,
    taint_problems,
)
from embedded_cluster.apiserver.validation.selectors import node_selector_problems

MOST_DEVICES: Final = 128
MOST_COSTLY_DEVICES: Final = 64
MOST_PROPERTIES: Final = 32
MOST_VALUES: Final = 48
MOST_COUNTER_SETS: Final = 8
MOST_COUNTERS: Final = 32
MOST_CONSUMED_SETS: Final = 2
MOST_TAINTS: Final = 16
LONGEST_VALUE: Final = 64
_MOST_OPTIONS: Final = 10
_MOST: Final = 2**63 - 1
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
LIST_KINDS: Final = ("ints", "bools", "strings", "versions")
_KINDS: Final = ("int", "bool", "string", "version", *LIST_KINDS)
_UNION: Final = "must specify"
_CHOICES: Final = ", ".join(f"`{kind}`" for kind in _KINDS)
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def problems(spec: JSON) -> list[FieldError]:
    """Problems of a ResourceSliceSpec."""
    found = driver_problems(spec.get("driver"), "spec.driver")
    pool = spec.get("pool") or {}
    found += pool_problems(pool.get("name"), "spec.pool.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        found.append(invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        found.append(invalid_value("spec.pool.generation", generation, "must be greater than or equal to zero"))
    found += _place_problems(spec, "spec", _PLACES, exactly_one_term=True)
    devices, counters = spec.get("devices") or (), spec.get("sharedCounters") or ()
    if devices and counters:
        found.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    per_device = bool(spec.get("perDeviceNodeSelection"))
    costly = len(devices) > MOST_COSTLY_DEVICES and any(_costly(device) for device in devices)
    most = MOST_COSTLY_DEVICES if costly else MOST_DEVICES
    found += set_problems(
        devices, "spec.devices", most, _name, lambda device, at: _device_problems(device, at, per_device=per_device)
    )
    return found + set_problems(counters, "spec.sharedCounters", MOST_COUNTER_SETS, _name, _counter_set_problems)


def _name(item: JSON) -> str:
    name: str = item.get("name", "")
    return name


def changed_problems(new: JSON, old: JSON) -> list[FieldError]:
    """What may not change in a slice."""
    found: list[FieldError] = []
    if (new.get("pool") or {}).get("name") != (old.get("pool") or {}).get("name"):
        found.append(immutable("spec.pool.name", (new.get("pool") or {}).get("name")))
    found += [
        immutable(f"spec.{part}", new.get(part)) for part in ("driver", "nodeName") if new.get(part) != old.get(part)
    ]
    return found


_NOWHERE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
"""Of a device that says nothing of nodes, or too much."""


def _place_problems(part: JSON, at: str, places: Sequence[str], *, exactly_one_term: bool) -> list[FieldError]:
    """Exactly one of the ways to say where devices are; an empty or false one counts as not said."""
    found: list[FieldError] = []
    if part.get("nodeName") == "":
        found.append(invalid_value(f"{at}.nodeName", "", "must be either unset or set to a non-empty string"))
    elif part.get("nodeName") and (wrong := names.dns_subdomain(part["nodeName"])):
        found.append(invalid_value(f"{at}.nodeName", part["nodeName"], wrong))
    if part.get("nodeSelector") is not None:
        found += node_selector_problems(part["nodeSelector"], f"{at}.nodeSelector", exactly_one=exactly_one_term)
    found += [
        invalid_value(f"{at}.{flag}", False, "must be either unset or set to true")
        for flag in ("allNodes", "perDeviceNodeSelection")
        if part.get(flag) is False
    ]
    said = [place for place in places if part.get(place) not in (None, "", False)]
    listed = ", ".join(f"`{place}`" for place in places)
    if not said:
        found.append(required(at, f"exactly one of {listed} is required" if exactly_one_term else _NOWHERE))
    elif len(said) > 1:
        chosen = "{" + ", ".join(f"`{place}`" for place in said) + "}"
        detail = f"exactly one of {listed} is required, but multiple fields are set" if exactly_one_term else _NOWHERE
        found.append(invalid_value(at, chosen, detail))
    return found


def _counter_set_problems(item: JSON, at: str) -> list[FieldError]:
    found = required_name_problems(item.get("name"), f"{at}.name", names.dns_label)
    return found + _counters_problems(item.get("counters") or {}, f"{at}.counters")


def _counters_problems(counters: Mapping[str, Any], at: str) -> list[FieldError]:
    if not counters:
        return [required(at)]
    if len(counters) > MOST_COUNTERS:
        return [too_many(at, len(counters), MOST_COUNTERS)]
    return [problem for name in sorted(counters) for problem in name_problems(name, at, names.dns_label)]


def _costly(device: JSON) -> bool:
    """Devices with taints, counters or list attributes are limited to half as many per slice."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(_lists(attribute) for attribute in (device.get("attributes") or {}).values())


def _lists(attribute: JSON) -> bool:
    return any(kind in attribute for kind in LIST_KINDS)


def _device_problems(device: JSON, at: str, *, per_device: bool) -> list[FieldError]:
    found = name_problems(device.get("name"), f"{at}.name", names.dns_label)
    found += _properties_problems(device, at)
    consumed = device.get("consumesCounters") or ()
    found += set_problems(consumed, f"{at}.consumesCounters", MOST_CONSUMED_SETS, _counter_set, _consumption_problems)
    places = _PLACES[:3]
    if per_device:
        found += _place_problems(device, at, places, exactly_one_term=False)
    elif any(device.get(place) is not None for place in places):
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
            "in the ResourceSlice spec"
        )
        found.append(invalid_value(at, None, detail))
    taints = device.get("taints") or ()
    if len(taints) > MOST_TAINTS:
        found.append(too_many(f"{at}.taints", len(taints), MOST_TAINTS))
    for index, taint in enumerate(taints):
        found += taint_problems(taint, f"{at}.taints[{index}]")
    return found + binding_condition_problems(device, at)


def _properties_problems(device: JSON, at: str) -> list[FieldError]:
    """Attributes and capacity: their names, values and numbers."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    found: list[FieldError] = []
    if len(attributes) + len(capacity) > MOST_PROPERTIES:
        detail = f"the total number of attributes and capacities must not exceed {MOST_PROPERTIES}"
        found.append(invalid_value(at, len(attributes) + len(capacity), detail))
    values = 0
    for name in sorted(attributes):
        attribute = attributes[name]
        if not qualified(name):
            found += qualified_problems(name, f"{at}.attributes")
        if plain_attribute(attribute):
            values += 1
            continue
        found += _attribute_problems(attribute, f"{at}.attributes[{name}]")
        values += max((len(value) if isinstance(value, list) else 1 for value in attribute.values()), default=0)
    if values > MOST_VALUES:
        detail = f"the total number of attribute values must not exceed {MOST_VALUES}"
        found.append(invalid_value(f"{at}.attributes", values, detail))
    for name in sorted(capacity):
        if not qualified(name):
            found += qualified_problems(name, f"{at}.capacity")
        policy, where = capacity[name].get("requestPolicy"), f"{at}.capacity[{name}].requestPolicy"
        if policy is None:
            continue
        if not device.get("allowMultipleAllocations"):
            found.append(forbidden(where, "allowMultipleAllocations must be true"))
        else:
            found += _policy_problems(policy, capacity[name].get("value", "0"), where)
    return found


@lru_cache(maxsize=4096)
def qualified(name: str) -> bool:
    """True for a valid attribute or capacity name; the same few names come with every device."""
    return not qualified_problems(name, "")


def plain_attribute(attribute: JSON) -> bool:
    """True for an attribute that is one valid scalar: the quick answer for nearly all of them."""
    if len(attribute) != 1:
        return False
    kind, value = next(iter(attribute.items()))
    if kind == "string":
        return len(value) <= LONGEST_VALUE and value.isascii()
    return kind in ("int", "bool") or (kind == "version" and _version(value))


@lru_cache(maxsize=1024)
def _version(value: str) -> bool:
    return len(value) <= LONGEST_VALUE and _VERSION.fullmatch(value) is not None


def _attribute_problems(attribute: JSON, at: str) -> list[FieldError]:
    said = [kind for kind in _KINDS if kind in attribute]
    if not said:
        return [invalid_value(at, "", f"{_UNION} one of: {_CHOICES}")]
    found = [problem for kind in said for problem in _value_problems(kind, attribute[kind], at)]
    if len(said) > 1:
        found.append(invalid_value(at, f"{{{', '.join(said)}}}", f"{_UNION} exactly one of: {_CHOICES}"))
    return found


def _value_problems(kind: str, value: Any, at: str) -> list[FieldError]:
    items: Sequence[Any] = value if isinstance(value, list) else (value,)
    found: list[FieldError] = []
    for index, item in enumerate(items):
        where = f"{at}.{kind}[{index}]" if isinstance(value, list) else f"{at}.{kind}"
        if kind.startswith(("string", "version")) and len(str(item).encode()) > LONGEST_VALUE:
            found.append(too_long(where, LONGEST_VALUE))
        elif kind.startswith("version") and not _VERSION.fullmatch(str(item)):
            found.append(invalid_value(where, item, "must be a string compatible with semver.org spec 2.0.0"))
    return found


def _counter_set(consumed: JSON) -> str:
    name: str = consumed.get("counterSet", "")
    return name


def _consumption_problems(consumed: JSON, at: str) -> list[FieldError]:
    found = required_name_problems(consumed.get("counterSet"), f"{at}.counterSet", names.dns_label)
    return found + _counters_problems(consumed.get("counters") or {}, f"{at}.counters")


# request policies of shared capacity


def _policy_problems(policy: JSON, value: str, at: str) -> list[FieldError]:
    """Problems of the requestPolicy of a capacity of `value`."""
    values, bounds, default = policy.get("validValues") or (), policy.get("validRange"), policy.get("default")
    if values and bounds is not None:
        both = 'cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(at, f"exactly one policy can be specified, {both}")]
    found: list[FieldError] = []
    for chosen, name in ((values, "validValues"), (bounds, "validRange")):
        if chosen and default is None:
            found.append(required(f"{at}.default", f"required when {name} is defined"))
    capacity = Quantity.parse(value)
    if values:
        found += _values_problems(values, default, capacity, f"{at}.validValues")
    if bounds is not None:
        found += _range_problems(bounds, default, capacity, f"{at}.validRange")
    return found


def _values_problems(values: Sequence[str], default: str | None, capacity: Quantity, at: str) -> list[FieldError]:
    if len(values) > _MOST_OPTIONS:
        return [too_many(at, len(values), _MOST_OPTIONS)]
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
    whole = [str(amount.value()) for amount in amounts]
    found += [duplicate(f"{at}[{i}]", amount) for i, amount in enumerate(whole) if amount in whole[:i]]
    if default is not None and Quantity.parse(default) not in amounts:
        found.append(invalid_value(at, default, "default value is not valid according to the requestPolicy"))
    return found


def _range_problems(bounds: JSON, default: str | None, capacity: Quantity, at: str) -> list[FieldError]:
    if bounds.get("min") is None:
        return [required(f"{at}.min", "required when validRange is defined")]
    least = Quantity.parse(bounds["min"])
    most = Quantity.parse(bounds["max"]) if bounds.get("max") is not None else None
    found: list[FieldError] = []
    if capacity < least:
        found.append(invalid_value(f"{at}.min", bounds["min"], f"min is larger than capacity value: {capacity}"))
    if most is not None and capacity < most:
        found.append(invalid_value(f"{at}.max", bounds["max"], f"max is larger than capacity value: {capacity}"))
    if most is not None and most < least:
        found.append(invalid_value(f"{at}.max", bounds["min"], f"min is larger than max: {bounds['max']}"))
    if default is not None:
        wanted = Quantity.parse(default)
        if wanted < least:
            found.append(invalid_value(f"{at}.default", default, f"default is less than min: {bounds['min']}"))
        if most is not None and most < wanted:
            found.append(invalid_value(f"{at}.default", default, f"default is more than max: {bounds['max']}"))
    step = bounds.get("step")
    if step is not None and capacity < (next_least := least + Quantity.parse(step)):
        detail = f"one step {next_least} is larger than capacity value: {capacity}"
        found.append(invalid_value(f"{at}.step", step, detail))
    outside = [
        problem
        for name, amount in {"default": default, **bounds}.items()
        if amount is not None
        for problem in _whole_problems(name, amount, f"{at}.{name}")
    ]
    return found + (outside if outside or step is None else _step_problems(bounds, default, at))


def _whole_problems(name: str, amount: str, at: str) -> list[FieldError]:
    """The errors for an amount that does not fit into 63 bits, or a step that is not above zero."""
    nano = Quantity.parse(amount).nano
    if nano < 0 or (name == "step" and not nano):
        detail = "zero" if name == "step" else "or equal to 0"
        return [invalid_value(at, amount, f"must be greater than {detail}")]
    return [invalid_value(at, amount, f"must not be larger than {_MOST}")] if nano > _MOST * 10**9 else []


def _step_problems(bounds: JSON, default: str | None, at: str) -> list[FieldError]:
    """Steps are computed with whole numbers."""
    least, whole = Quantity.parse(bounds["min"]).value(), Quantity.parse(bounds["step"]).value()
    detail = f"value is not a multiple of a given step ({bounds['step']}) from ({bounds['min']})"
    return [
        invalid_value(f"{at}.step", amount, detail)
        for amount in (default, bounds.get("max"))
        if amount is not None and (Quantity.parse(amount).value() - least) % whole
    ]
