"""Whether an allocation is valid, checked on the JSON of a scenario without any code of the allocator but selectors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from dra_extender.api.decoding import convert
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Device
from dra_extender.cel import CelGates, DeviceView, Program, PublishedDevice

Json = dict[str, Any]
DeviceID = tuple[str, str, str]


def violations(case: Json, allocations: list[Json]) -> list[str]:
    """What is wrong with the answer: selection, counts, exclusive use, constraints, counters, capacity."""
    devices = {
        (item["spec"]["driver"], item["spec"]["pool"]["name"], entry["name"]): entry
        for item in case["slices"]
        for entry in item["spec"].get("devices", ())
    }
    results = [allocation.get("devices", {}).get("results", []) for allocation in allocations]
    problems: list[str] = []
    for claim, found in zip(case["claims"], results, strict=True):
        problems += _requests(case, claim, found, devices)
        problems += _constraints(claim, found, devices)
    everything = [result for found in results for result in found if not result.get("adminAccess")]
    problems += _exclusive(case, everything, devices)
    problems += _counters(case, everything, devices)
    problems += _capacity(everything, devices)
    return problems


def _id(result: Mapping[str, Any]) -> DeviceID:
    return result["driver"], result["pool"], result["device"]


def _requests(case: Json, claim: Json, found: list[Json], devices: dict[DeviceID, Json]) -> Iterator[str]:
    classes = {item["metadata"]["name"]: item["spec"] for item in case["classes"]}
    for request in claim["spec"]["devices"]["requests"]:
        names = {request["name"]: request.get("exactly")}
        if "firstAvailable" in request:
            names = {f"{request['name']}/{item['name']}": item for item in request["firstAvailable"]}
        chosen = {result["request"] for result in found} & set(names)
        if len(chosen) != 1:
            yield f"{request['name']}: {len(chosen)} alternatives"
            continue
        name = chosen.pop()
        ask = names[name]
        mine = [_id(result) for result in found if result["request"] == name]
        if len(set(mine)) != len(mine):
            yield f"{name}: a device twice"
        if ask["allocationMode"] == "ExactCount" and len(mine) != ask.get("count", 1):
            yield f"{name}: {len(mine)} devices"
        selectors = [*classes[ask["deviceClassName"]].get("selectors", ()), *ask.get("selectors", ())]
        for device in mine:
            if not all(_selected(item["cel"]["expression"], device[0], devices[device]) for item in selectors):
                yield f"{name}: {device} is not selected"


def _selected(expression: str, driver: str, entry: Json) -> bool:
    gates = CelGates(True, True)
    view = DeviceView.build(PublishedDevice.of(driver, convert(Device, entry)), gates)
    return Program(expression, gates).evaluate(view)


def _values(device: DeviceID, devices: dict[DeviceID, Json], name: str) -> set[Any]:
    attributes = devices[device].get("attributes", {})
    domain, _, bare = name.partition("/")
    value = attributes.get(name) or (attributes.get(bare) if domain == device[0] else None) or {}
    return {
        (kind.rstrip("s"), item)
        for kind, content in value.items()
        for item in (content if isinstance(content, list) else [content])
    }


def _constraints(claim: Json, found: list[Json], devices: dict[DeviceID, Json]) -> Iterator[str]:
    for constraint in claim["spec"]["devices"].get("constraints", ()):
        names = constraint.get("requests")
        covered = [
            _id(result)
            for result in found
            if not names or result["request"] in names or result["request"].split("/")[0] in names
        ]
        name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        sets = [_values(device, devices, name) for device in covered]
        if "matchAttribute" in constraint:
            if sets and not set.intersection(*sets):
                yield f"{name} does not match"
        elif any(count > 1 for count in Counter(value for item in sets for value in item).values()) or not all(sets):
            yield f"{name} is not distinct"


def _exclusive(case: Json, found: list[Json], devices: dict[DeviceID, Json]) -> Iterator[str]:
    held = [
        _id(result)
        for claim in case["allocatedClaims"]
        for result in claim["status"]["allocation"]["devices"]["results"]
        if not result.get("adminAccess") and not result.get("shareID")
    ]
    mine = [_id(result) for result in found if not devices[_id(result)].get("allowMultipleAllocations")]
    for device, count in Counter(held + mine).items():
        if count > 1:
            yield f"{device} is used {count} times"


def _counters(case: Json, found: list[Json], devices: dict[DeviceID, Json]) -> Iterator[str]:
    used: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for device in {_id(result) for result in found}:
        for part in devices[device].get("consumesCounters", ()):
            for name, counter in part["counters"].items():
                used[device[0], device[1], part["counterSet"], name] += Quantity.parse(counter["value"]).nano
    for item in case["slices"]:
        spec = item["spec"]
        for counter_set in spec.get("sharedCounters", ()):
            for name, counter in counter_set["counters"].items():
                key = spec["driver"], spec["pool"]["name"], counter_set["name"], name
                if used[key] > Quantity.parse(counter["value"]).nano:
                    yield f"counter {key} is overdrawn"


def _capacity(found: list[Json], devices: dict[DeviceID, Json]) -> Iterator[str]:
    used: dict[tuple[DeviceID, str], int] = defaultdict(int)
    for result in found:
        for name, amount in result.get("consumedCapacity", {}).items():
            used[_id(result), name] += Quantity.parse(amount).nano
    for (device, name), amount in used.items():
        if amount > Quantity.parse(devices[device]["capacity"][name]["value"]).nano:
            yield f"capacity {name} of {device} is overdrawn"
