"""Nodes that start equal and drift apart by one small change after the other: what is published and asked for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim

Json = dict[str, Any]

NODES = ("n0", "n1", "n2")
DEVICES = ("d0", "d1", "d2", "d3")
CLAIMS = tuple(f"c{index}" for index in range(6))
GATES = (
    *[""] * 6,
    "DRAPartitionableDevices=false",
    "DRAConsumableCapacity=false",
    "DRADeviceTaints=false",
    "DRADeviceBindingConditions=false",
)
SELECTORS = (
    *['device.driver == "gpu"'] * 3,
    'device.attributes["gpu"].?model.orValue("") == "x"',
    'device.attributes["gpu"].?model.orValue("") != "y"',
    '"root" in device.attributes["gpu"]',
    'device.capacity["gpu"].?memory.orValue(quantity("0")).compareTo(quantity("6")) > 0',
    'device.attributes["gpu"].model == "x"',
)
IN_ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}
OPEN = (
    {"allNodes": True},
    {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [IN_ZONE_A]}]}},
    {"perDeviceNodeSelection": True},
)


# --- what drivers publish ---------------------------------------------------------------------------------------------


def one_in(number: int) -> st.SearchStrategy[bool]:
    return st.integers(1, number).map(lambda drawn: drawn == 1)


ROOTS = st.sampled_from(({"int": 1}, {"int": 2}, {"bool": True}, {"string": "1"}))
MEMORY = st.sampled_from(("4", "8"))
FIRMWARE = st.sampled_from(({"version": "1.0.0"}, {"version": "not a version"}))
TAINTS = st.sampled_from(([], [{"key": "t", "effect": "NoSchedule"}], [{"key": "t", "effect": "None"}]))


def device_of(name: str, *parts: Json) -> Json:
    attributes = {
        "model": {"string": "x"},
        "root": {"int": int(name[-1]) // 2},
        "serial": {"string": f"serial-{name}"},
    }
    found: Json = {"name": name, "attributes": attributes}
    for part in parts:
        found |= part
    return found


@st.composite
def templates(draw: st.DrawFn) -> list[Json]:
    """The devices every node starts with: plain, in shares, partitions of one thing, or mixed."""
    partitioned, shared = draw(st.sampled_from(((0, 0), (1, 0), (0, 1), (1, 1), (3, 3))))
    found = []
    for name in DEVICES:
        parts = []
        if partitioned and draw(one_in(partitioned)):
            parts.append(consuming(draw(st.sampled_from("12"))))
        if shared and draw(one_in(shared)):
            parts.append(shareable(draw(MEMORY)))
        found.append(device_of(name, *parts))
    return found


def shareable(memory: str) -> Json:
    policy = {"default": "2", "validRange": {"min": "2"}}
    capacity = {"memory": {"value": memory, "requestPolicy": policy}}
    return {"capacity": capacity, "allowMultipleAllocations": True}


def consuming(units: str) -> Json:
    return {"consumesCounters": [{"counterSet": "c", "counters": {"u": {"value": units}}}]}


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Json]:
    """(field, value): attributes are merged, other fields replaced."""
    field = draw(
        st.sampled_from(
            ("model", "root", "serial", "firmware", "capacity", "share", "multi", "units", "taints", "late")
        )
    )
    if field == "model":
        return "attributes", {"model": {"string": draw(st.sampled_from("xy"))}}
    if field == "root":
        return "attributes", {"root": draw(ROOTS)}
    if field == "serial":
        return "attributes", {"serial": {"string": draw(st.sampled_from(("one", "two")))}}
    if field == "firmware":
        return "attributes", {"firmware": draw(FIRMWARE)}
    if field == "capacity":
        return "device", {"capacity": {"memory": {"value": draw(MEMORY)}}}
    if field == "share":
        return "device", shareable(draw(MEMORY))
    if field == "multi":
        return "device", {"allowMultipleAllocations": draw(st.booleans())}
    if field == "units":
        return "device", consuming(draw(st.sampled_from("12")))
    if field == "taints":
        return "device", {"taints": draw(TAINTS)}
    return "device", {"bindingConditions": ["ready"]}


def changed(device: Json, change: tuple[str, Json]) -> Json:
    field, value = change
    return device | ({"attributes": device["attributes"] | value} if field == "attributes" else value)


# --- what pods ask for ------------------------------------------------------------------------------------------------


@st.composite
def asks(draw: st.DrawFn) -> Json:
    ask: Json = {"deviceClassName": draw(st.sampled_from(("any", "any", "gpu"))), "allocationMode": "ExactCount"}
    if draw(one_in(5)):
        ask["allocationMode"] = "All"
    else:
        ask["count"] = draw(st.sampled_from((1, 1, 2, 3)))
    if draw(one_in(2)):
        ask["selectors"] = [{"cel": {"expression": draw(st.sampled_from(SELECTORS))}}]
    if draw(one_in(4)):
        ask["tolerations"] = [{"key": "t", "operator": "Exists"}]
    if draw(one_in(4)):
        ask["capacity"] = {"requests": {"memory": draw(st.sampled_from(("1", "4", "5")))}}
    return ask


@st.composite
def specs(draw: st.DrawFn) -> Json:
    requests: list[Json] = []
    for index in range(draw(st.sampled_from((1, 1, 2)))):
        if draw(one_in(4)):
            alternatives = [{"name": f"a{i}", **draw(asks())} for i in range(2)]
            requests.append({"name": f"r{index}", "firstAvailable": alternatives})
        else:
            admin = {"adminAccess": True} if draw(one_in(6)) else {}
            requests.append({"name": f"r{index}", "exactly": draw(asks()) | admin})
    found: Json = {"requests": requests}
    if draw(one_in(2)):
        kind = draw(st.sampled_from(("matchAttribute", "matchAttribute", "distinctAttribute")))
        found["constraints"] = [{kind: draw(st.sampled_from(("gpu/root", "gpu/root", "gpu/model", "gpu/serial")))}]
    return {"devices": found}


PODS = st.lists(specs(), min_size=1, max_size=2)


def claim_of(name: str, version: int, spec: Json, results: list[Json] | None = None) -> ResourceClaim:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec, "status": status})


# --- the machine ------------------------------------------------------------------------------------------------------
