"""Field errors of resource slices and the devices in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.embedded.apiserver import names
from app.embedded.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    immutable,
    invalid_value,
    required,
    too_long,
    too_many,
)
from app.embedded.apiserver.validation.claims import binding_condition_problems
from app.embedded.apiserver.validation.parts import (
    name_problems,
    node_selector_problems,
    pool_problems,
    qualified_problems,
    set_problems,
    taint_problems,
)

MOST_DEVICES: Final = 128
MOST_COSTLY_DEVICES: Final = 64
MOST_PROPERTIES: Final = 32
MOST_VALUES: Final = 48
MOST_COUNTER_SETS: Final = 8
MOST_COUNTERS: Final = 32
MOST_CONSUMED_SETS: Final = 2
MOST_TAINTS: Final = 16
LONGEST_VALUE: Final = 64
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_KINDS: Final = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def problems(spec: JSON) -> list[Problem]:
    """Problems of a ResourceSliceSpec."""
    found = name_problems(spec.get("driver"), "spec.driver", names.driver_name)
    pool = spec.get("pool") or {}
    found += pool_problems(pool.get("name"), "spec.pool.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        found.append(
            invalid_value(
                "spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero"
            )
        )
    if pool.get("generation", 0) < 0:
        found.append(invalid_value("spec.pool.generation", pool["generation"], "must be greater than or equal to zero"))
    found += _place_problems(spec, "spec", _PLACES, exactly_one_term=True)
    devices, counters = spec.get("devices") or (), spec.get("sharedCounters") or ()
    if devices and counters:
        found.append(invalid_value("spec", "<value omitted>", "only one of `sharedCounters` or `devices` is allowed"))
    found += _counter_set_problems(counters)
    return found + _devices_problems(devices, per_device=bool(spec.get("perDeviceNodeSelection")))


def changed_problems(new: JSON, old: JSON) -> list[Problem]:
    """What may not change in a slice."""
    found: list[Problem] = []
    if new.get("driver") != old.get("driver"):
        found.append(immutable("spec.driver", new.get("driver")))
    if (new.get("pool") or {}).get("name") != (old.get("pool") or {}).get("name"):
        found.append(immutable("spec.pool.name", (new.get("pool") or {}).get("name")))
    if new.get("nodeName") != old.get("nodeName"):
        found.append(immutable("spec.nodeName", new.get("nodeName")))
    return found


def _place_problems(part: JSON, at: str, places: Sequence[str], *, exactly_one_term: bool) -> list[Problem]:
    """Exactly one of the ways to say where devices are."""
    said = [place for place in places if part.get(place) is not None]
    found: list[Problem] = []
    if "nodeName" in said and not part["nodeName"]:
        found.append(required(f"{at}.nodeName"))
    elif "nodeName" in said and (wrong := names.dns_subdomain(part["nodeName"])):
        found.append(invalid_value(f"{at}.nodeName", part["nodeName"], wrong))
    if "nodeSelector" in said:
        found += node_selector_problems(part["nodeSelector"], f"{at}.nodeSelector", exactly_one=exactly_one_term)
    for flag in ("allNodes", "perDeviceNodeSelection"):
        if flag in said and part[flag] is not True:
            found.append(invalid_value(f"{at}.{flag}", part[flag], "must be either unset or set to true"))
    listed = ", ".join(f"`{place}`" for place in places)
    if not said:
        found.append(required(at, f"exactly one of {listed} is required"))
    elif len(said) > 1:
        chosen = "{" + ", ".join(f"`{place}`" for place in said) + "}"
        found.append(invalid_value(at, chosen, f"exactly one of {listed} is required, but multiple fields are set"))
    return found


def _counter_set_problems(sets: Sequence[JSON]) -> list[Problem]:
    at = "spec.sharedCounters"
    found = set_problems(sets, at, MOST_COUNTER_SETS, lambda item: item.get("name", ""), ".name")
    for index, item in enumerate(sets):
        found += name_problems(item.get("name"), f"{at}[{index}].name", names.dns_label)
        found += _counters_problems(item.get("counters") or {}, f"{at}[{index}].counters")
    return found


def _counters_problems(counters: Mapping[str, Any], at: str) -> list[Problem]:
    if not counters:
        return [required(at)]
    if len(counters) > MOST_COUNTERS:
        return [too_many(at, len(counters), MOST_COUNTERS)]
    return [problem for name in counters for problem in name_problems(name, at, names.dns_label)]


def _devices_problems(devices: Sequence[JSON], *, per_device: bool) -> list[Problem]:
    at = "spec.devices"
    costly = any(_costly(device) for device in devices)
    found = set_problems(
        devices, at, MOST_COSTLY_DEVICES if costly else MOST_DEVICES, lambda device: device.get("name", ""), ".name"
    )
    for index, device in enumerate(devices):
        found += _device_problems(device, f"{at}[{index}]", per_device=per_device)
    return found


def _costly(device: JSON) -> bool:
    """Devices with taints, counters or list attributes are limited to half as many per slice."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = device.get("attributes")
    return bool(attributes) and any(_lists(attribute) for attribute in attributes.values())


def _lists(attribute: JSON) -> bool:
    return any(kind.endswith("s") and kind in attribute for kind in _KINDS)


def _device_problems(device: JSON, at: str, *, per_device: bool) -> list[Problem]:
    found = name_problems(device.get("name"), f"{at}.name", names.dns_label)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > MOST_PROPERTIES:
        detail = f"the total number of attributes and capacities must not exceed {MOST_PROPERTIES}"
        found.append(invalid_value(at, len(attributes) + len(capacity), detail))
    values = 0
    for name, attribute in attributes.items():
        found += qualified_problems(name, f"{at}.attributes")
        found += _attribute_problems(attribute, f"{at}.attributes[{name}]")
        values += max((len(value) if isinstance(value, list) else 1 for value in attribute.values()), default=0)
    if values > MOST_VALUES:
        found.append(
            invalid_value(
                f"{at}.attributes", values, f"the total number of attribute values must not exceed {MOST_VALUES}"
            )
        )
    multiple = bool(device.get("allowMultipleAllocations"))
    for name, value in capacity.items():
        found += qualified_problems(name, f"{at}.capacity")
        if value.get("requestPolicy") is not None and not multiple:
            detail = "allowed only when allowMultipleAllocations is true"
            found.append(forbidden(f"{at}.capacity[{name}].requestPolicy", detail))
    found += _consumption_problems(device.get("consumesCounters") or (), f"{at}.consumesCounters")
    places = _PLACES[:3]
    if per_device:
        found += _place_problems(device, at, places, exactly_one_term=False)
    else:
        found += [
            forbidden(f"{at}.{place}", "only allowed when `perDeviceNodeSelection` is true")
            for place in places
            if device.get(place) is not None
        ]
    taints = device.get("taints") or ()
    if len(taints) > MOST_TAINTS:
        found.append(too_many(f"{at}.taints", len(taints), MOST_TAINTS))
    for index, taint in enumerate(taints):
        found += taint_problems(taint, f"{at}.taints[{index}]")
    return found + binding_condition_problems(device, at)


def _attribute_problems(attribute: JSON, at: str) -> list[Problem]:
    said = [kind for kind in _KINDS if kind in attribute]
    if not said:
        return [required(at, "exactly one value must be specified")]
    if len(said) > 1:
        return [invalid_value(at, attribute, "exactly one value must be specified")]
    kind, value = said[0], attribute[said[0]]
    items: Sequence[Any] = value if isinstance(value, list) else (value,)
    found: list[Problem] = []
    for index, item in enumerate(items):
        where = f"{at}.{kind}[{index}]" if isinstance(value, list) else f"{at}.{kind}"
        if kind.startswith(("string", "version")) and len(str(item).encode()) > LONGEST_VALUE:
            found.append(too_long(where, LONGEST_VALUE))
        elif kind.startswith("version") and not _VERSION.fullmatch(str(item)):
            found.append(invalid_value(where, item, "must be a string compatible with semver.org spec 2.0.0"))
    return found


def _consumption_problems(consumed: Sequence[JSON], at: str) -> list[Problem]:
    if len(consumed) > MOST_CONSUMED_SETS:
        return [too_many(at, len(consumed), MOST_CONSUMED_SETS)]
    found: list[Problem] = []
    seen: set[str] = set()
    for index, entry in enumerate(consumed):
        name = entry.get("counterSet", "")
        found += name_problems(name, f"{at}[{index}].counterSet", names.dns_label)
        if name in seen:
            found.append(duplicate(f"{at}[{index}].counterSet", name))
        seen.add(name)
        found += _counters_problems(entry.get("counters") or {}, f"{at}[{index}].counters")
    return found
