"""Small scenarios in the form of the conformance vectors, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from dra_extender.allocation import scenario as scenarios

DRIVER = "gpu.example.com"
NODE = "node-1"
A = f'device.attributes["{DRIVER}"]'

Json = dict[str, Any]


def attribute(value: object) -> Json:
    """The API form of a plain value: bool, int, str, or a list of one of them."""
    if isinstance(value, list):
        kind = {bool: "bools", int: "ints", str: "strings"}[type(value[0])] if value else "strings"
        return {kind: value}
    return {{bool: "bool", int: "int", str: "string"}[type(value)]: value}


def device(
    name: str,
    attributes: Mapping[str, object] | None = None,
    *,
    capacity: Mapping[str, str] | None = None,
    counters: Mapping[str, Mapping[str, str]] | None = None,
    **fields: Any,
) -> Json:
    """A device of a slice; `counters` is set -> counter -> amount, other fields are those of the API."""
    result: Json = {"name": name, **fields}
    if attributes:
        result["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    if capacity:
        result["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    if counters:
        result["consumesCounters"] = [
            {"counterSet": name, "counters": {key: {"value": amount} for key, amount in amounts.items()}}
            for name, amounts in counters.items()
        ]
    return result


def devices(count: int, **values: Sequence[object]) -> list[Json]:
    """`dev-0`, `dev-1`, ... with attribute `index` and one attribute per keyword."""
    return [
        device(f"dev-{i}", {"index": i, **{name.replace("__", "/"): items[i] for name, items in values.items()}})
        for i in range(count)
    ]


def resource_slice(
    content: Sequence[Json] = (),
    *,
    name: str = "slice",
    driver: str = DRIVER,
    pool: str = "pool",
    generation: int = 1,
    count: int = 1,
    where: Json | None = None,
    counters: Mapping[str, Mapping[str, str]] | None = None,
) -> Json:
    """A slice for the node, or for `where` (fields of the spec)."""
    spec: Json = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **({"nodeName": NODE} if where is None else where),
    }
    if content:
        spec["devices"] = list(content)
    if counters:
        spec["sharedCounters"] = [
            {"name": key, "counters": {counter: {"value": amount} for counter, amount in amounts.items()}}
            for key, amounts in counters.items()
        ]
    return {"metadata": {"name": name}, "spec": spec}


def ask(count: int | None = 1, selector: str = "", *, cls: str = "gpu", **fields: Any) -> Json:
    """What `exactly` or an alternative holds; `count` None is mode All."""
    mode: Json = {"allocationMode": "All"} if count is None else {"allocationMode": "ExactCount", "count": count}
    selectors = {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    return {"deviceClassName": cls, **mode, **selectors, **fields}


def request(name: str, *args: Any, **fields: Any) -> Json:
    """An exact request."""
    return {"name": name, "exactly": ask(*args, **fields)}


def first_available(name: str, *alternatives: Json) -> Json:
    """A request with alternatives `a`, `b`, ... made by `ask`."""
    return {"name": name, "firstAvailable": [{"name": chr(97 + i), **item} for i, item in enumerate(alternatives)]}


def claim(*requests: Json, name: str = "claim", constraints: Sequence[Json] = (), config: Sequence[Json] = ()) -> Json:
    spec: Json = {"requests": list(requests)}
    if constraints:
        spec["constraints"] = list(constraints)
    if config:
        spec["config"] = list(config)
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": {"devices": spec}}


def allocated(*results: str | Json, name: str = "other") -> Json:
    """A claim that holds devices of the pool `pool`: names, or results with further fields."""
    entries = [
        {"request": "r", "driver": DRIVER, "pool": "pool", **({"device": item} if isinstance(item, str) else item)}
        for item in results
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [request("r")]}},
        "status": {"allocation": {"devices": {"results": entries}}},
    }


def device_class(name: str, *expressions: str, config: Sequence[Json] = ()) -> Json:
    spec: Json = {"selectors": [{"cel": {"expression": expression}} for expression in expressions]}
    if config:
        spec["config"] = list(config)
    return {"metadata": {"name": name}, "spec": spec}


def scenario(
    slices: Sequence[Json],
    claims: Sequence[Json],
    *,
    in_use: Sequence[Json] = (),
    classes: Sequence[Json] | None = None,
    labels: Mapping[str, str] | None = None,
    off: Sequence[str] = (),
    **fields: Any,
) -> Json:
    """A scenario with all gates on but those in `off`; class `gpu` is any device of the driver, `any` any device."""
    default = [device_class("gpu", f'device.driver == "{DRIVER}"'), device_class("any")]
    gates = [gate for gate in GATES if gate not in off]
    return {
        "name": "case",
        "features": gates,
        "node": {"metadata": {"name": NODE, "labels": dict(labels or {})}},
        "slices": list(slices),
        "classes": list(default if classes is None else classes),
        "allocatedClaims": list(in_use),
        "claims": list(claims),
        **fields,
    }


GATES = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRAResourceClaimDeviceStatus",
    "DRAListTypeAttributes",
)


def outcome(case: Json, **options: Any) -> Any:
    """The devices as one list per claim of `request=device`, or `none`, or `error: TEXT`."""
    found = answer(case, **options)
    if found["kind"] == "allocated":
        return [
            [f"{result['request']}={result['device']}" for result in allocation["devices"].get("results", ())]
            if "devices" in allocation
            else []
            for allocation in found["allocations"]
        ]
    return "none" if found["kind"] == "unschedulable" else f"error: {found['error']}"


def results(case: Json) -> list[Json]:
    """The results of the first claim."""
    found = answer(case)
    assert found["kind"] == "allocated", found["error"]
    return list(found["allocations"][0]["devices"]["results"])


def answer(case: Json, **options: Any) -> Json:
    """The decision for one scenario, by a clock that stands still."""
    return scenarios.answer(case, share_ids=lambda: str(uuid4()), nanoseconds=lambda: 0, **options)
