"""Lines that a watch may bring although no API server should write them: torn, deep, of wrong types, endless.

`wounded` is what `make fuzz` uses as well: an object of any kind with random JSON at random places.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

from tools.hostile.things import (
    DRIVER,
    HOSTILE,
    Body,
    Lines,
    Thing,
    claim,
    device_class,
    pod,
    request,
    resource_slice,
)

VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**63, 2**64, -(2**63), 10**30, 1e308, 1.5, "", "\x00", "ü" * 300, "x" * 20_000,
    "1e9999999", "9" * 5_000, "0x1", "1.0.0", "99999999999999999999.0.0", "-" * 100, "2026-01-01T00:00:00Z", [], {},
    [[]], [None], [1], {"": {}}, {"metadata": None}, {"a": [{"b": [{}]}]}, ["n1"] * 500, {"string": 1}, {"value": "1"},
    "All", "\ud800",
)  # fmt: skip
"""What is put where something else belongs."""
IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")


def samples() -> dict[str, Body]:
    """A good object of every kind that is watched, by the plural of its kind, with everything in it that we read."""
    device = {
        "name": "d0",
        "attributes": {"a": {"int": 1}, "b": {"string": "x"}, "c": {"version": "1.0.0"}, "d": {"bool": True}},
        "capacity": {
            "m": {
                "value": "1Gi",
                "requestPolicy": {"default": "1Mi", "validRange": {"min": "1Mi", "max": "1Gi", "step": "1Mi"}},
            }
        },
        "allowMultipleAllocations": True,
        "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
        "bindingConditions": ["a"],
        "bindingFailureConditions": ["b"],
    }
    counters = [{"name": "s", "counters": {"c": {"value": "9"}}}]
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    published = resource_slice("sample", "n1", [device], sharedCounters=counters)
    wanted = claim(
        "sample",
        request("r", f"device.driver == '{DRIVER}'", count=2, tolerations=[{"key": "k", "operator": "Exists"}]),
        {"name": "s", "firstAvailable": [{"name": "a", "deviceClassName": DRIVER, "count": 1}]},
        constraints=[{"requests": ["r"], "matchAttribute": f"{DRIVER}/a"}],
        config=[{"requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"x": [1]}}}],
    )
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0", "consumedCapacity": {"m": "1Mi"}}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    consumer = {"resource": "pods", "name": "sample", "uid": "uid-sample"}
    condition = {"type": "a", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    reported = [{"driver": DRIVER, "pool": "n1", "device": "d0", "conditions": [condition]}]
    wanted["status"] = {"allocation": allocation, "reservedFor": [consumer], "devices": reported}
    user = pod("sample", "sample")
    user["spec"] |= {"nodeName": "n1", "containers": [{"name": "m", "resources": {"requests": {"x.com/gpu": "1"}}}]}
    user["status"] = {
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "c0", "resourceClaimName": "sample"}],
        "conditions": [{"type": "PodScheduled", "status": "True"}],
    }
    chosen = device_class("sample", f"device.driver == '{DRIVER}'", extendedResourceName="x.com/gpu")
    chosen["spec"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {}}}]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "status": {"allocatable": {"cpu": "1", "x.com/gpu": "2"}},
    }
    made = {
        "resourceclaims": wanted,
        "resourceslices": published,
        "deviceclasses": chosen,
        "pods": user,
        "nodes": node,
    }
    for body in made.values():
        body["metadata"] |= {"uid": "uid-sample", "resourceVersion": "0"}
    return made


def wounded(dice: random.Random, body: Body, *, wounds: int = 0) -> Body:
    """A copy with random JSON at some places, any depth; its identity stays as it is."""
    made = copy.deepcopy(body)
    for _ in range(wounds or dice.randint(1, 4)):
        _wound(dice, made)
    metadata = made.get("metadata")
    own = {name: body["metadata"][name] for name in IDENTITY if name in body["metadata"]}
    made["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), **own}
    return made


def _wound(dice: random.Random, root: Body) -> None:
    spot: Any = root
    while True:
        keys = list(spot) if isinstance(spot, dict) else range(len(spot))
        if not keys:
            return
        key: Any = dice.choice(keys)
        below = spot[key]
        if not isinstance(below, dict | list) or not below or dice.random() < 0.1:
            break
        spot = below
    match dice.randrange(6):
        case 0:
            del spot[key]
        case 1:
            spot[key] = [copy.deepcopy(spot[key])] * dice.choice([1, 2, 40])
        case 2 if isinstance(spot, dict):
            spot[dice.choice(["", "value", "name", "spec", "x" * 300])] = value(dice)
        case 3:
            spot[key] = nested(dice.choice([10, 100, 400]), dice.choice(["[", "{"]))
        case _:
            spot[key] = value(dice)


def value(dice: random.Random, depth: int = 3) -> Any:
    """Random JSON."""
    if depth and dice.random() < 0.3:
        if dice.random() < 0.5:
            return [value(dice, depth - 1) for _ in range(dice.randint(0, 4))]
        return {f"k{i}": value(dice, depth - 1) for i in range(dice.randint(0, 4))}
    return copy.deepcopy(dice.choice(VALUES))  # what is drawn may be wounded itself


def nested(depth: int, bracket: str) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = [made] if bracket == "[" else {"a": made}
    return made


def event(body: Body | bytes, kind: str = "MODIFIED") -> bytes:
    """A line of a watch."""
    content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), content)


def deep_claim(name: str, depth: int, brackets: bytes = b"[]", **metadata: str) -> bytes:
    """A claim with opaque parameters that are nested so deeply; too deep for most encoders, so it is written here."""
    made = claim(name, request(), config=[{"opaque": {"driver": DRIVER, "parameters": {"a": "DEEP"}}}])
    made["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "0", **metadata}
    opening, closing = (b"[", b"]") if brackets == b"[]" else (b'{"a":', b"}")
    return json.dumps(made).encode().replace(b'"DEEP"', opening * depth + b"1" + closing * depth)


def things(dice: random.Random) -> Iterator[Thing]:
    """Lines for the watches of a running service."""
    for depth in (1_000, 3_000, 9_000, 100_000):
        lines = (event(deep_claim("deep", depth)), event(deep_claim("deeper", depth, b"{}")))
        yield Thing("watch lines", f"opaque parameters {depth:,} deep", Lines("resourceclaims", lines))
    whole = event(samples()["resourceclaims"])
    torn = tuple(whole[:at] + b"\n" for at in range(1, len(whole) - 2, 97))
    yield Thing("watch lines", "a torn line", Lines("resourceclaims", torn[:1]))
    yield Thing("watch lines", "many torn lines", Lines("resourceclaims", torn))
    yield Thing(
        "watch lines", "lines that are no JSON", Lines("pods", (b"\xff\xfe\n", b"<html>\n", b"null\n", b"[]\n", b"7\n"))
    )
    yield Thing("watch lines", "a type that is unknown", Lines("pods", (event(samples()["pods"], "EXPLODED"),)))
    yield Thing("watch lines", "an event without an object", Lines("nodes", (b'{"type":"ADDED"}\n', b"{}\n")))
    yield Thing("watch lines", "an error that is none", Lines("nodes", (event({"code": "x"}, "ERROR"),)))
    far = samples()["resourceclaims"]
    far["metadata"]["resourceVersion"] = "9" * 18
    yield Thing("watch lines", "a version of the far future", Lines("resourceclaims", (event(far),)))
    numbers = event(samples()["resourceslices"]).replace(b'"generation":1', b'"generation":' + b"9" * 100_000)
    yield Thing("watch lines", "a number of 100,000 digits", Lines("resourceslices", (numbers,)))
    text = event(samples()["pods"]).replace(b'"Running"', b'"' + b"x" * 10_000_000 + b'"')
    yield Thing("watch lines", "a line of 10 MB", Lines("pods", (text,)))
    many = tuple(_numbered(dice, number) for number in range(500))
    yield Thing("watch lines", "500 claims that cannot be decoded", Lines("resourceclaims", many), generated=True)
    for plural, body in samples().items():
        for number in range(3):
            bad = tuple(event(_own(wounded(dice, body), f"wounded-{i}")) for i in range(20))
            yield Thing("watch lines", f"generated {plural} {number}", Lines(plural, bad), generated=True)


def _numbered(dice: random.Random, number: int) -> bytes:
    body = samples()["resourceclaims"]
    body["spec"]["devices"]["requests"] = value(dice)
    return event(_own(body, f"bad-{number}"))


def _own(body: Body, name: str) -> Body:
    """Nobody else's name, so that no real object is overwritten. The namespace is a hostile one."""
    body["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    if "namespace" in body["metadata"]:
        body["metadata"]["namespace"] = HOSTILE
    return body
