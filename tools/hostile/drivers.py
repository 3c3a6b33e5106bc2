"""What drivers and those who look after devices may publish: pools for all nodes, long names, partitions, rules of
taints, conditions that never come true.

Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from tools.hostile.shapes import NODES, OWN
from tools.hostile.things import (
    DRIVER,
    Body,
    Objects,
    Thing,
    claim,
    device_class,
    pod,
    request,
    resource_slice,
    with_pod,
)

_LONG_DRIVER: Final = ".".join(["d" * 15] * 4)[:63]
_LONG_POOL: Final = "/".join(["p" * 62] * 4)[:253]
_RULES: Final = "resource.k8s.io/v1beta2"
_PAGES: Final = ("/insight/devices?limit=500", "/insight/problems", "/metrics")


def things(dice: random.Random) -> Iterator[Thing]:
    """Slices, classes and rules, with a claim for what is in them."""

    def published(name: str, *bodies: Body, wanted: Body | None = None, generated: bool = False) -> Thing:
        own = device_class(OWN, f"device.driver.endsWith('{OWN}')")
        made = with_pod("of-driver", own, *bodies, wanted or claim("of-driver", request(cls=OWN)))
        return Thing("drivers", name, Objects(made.bodies, pages=_PAGES), generated)

    yield published("100 drivers with names as long as may be", *map(_long_names, range(100)))
    yield published("100 pools for all nodes", *(_open(f"open-{i}", 8, allNodes=True) for i in range(100)))
    yield published("one pool of 6,400 devices for all nodes", *_wide(50))
    chosen = {"nodeSelectorTerms": [{"matchExpressions": _requirements(10_000)}]}
    yield published("a slice for nodes with 10,000 labels", _open("choosy", 8, nodeSelector=chosen))
    yield published("128 devices, each for nodes of its own", _each_its_own(128, 100))
    yield published("partitions that share 256 counters", *_partitions(), wanted=_parts(16))
    yield published("conditions that never come true", _conditional(64), wanted=_parts(8))
    yield published("1,000 rules that taint everything", *map(_rule, range(1_000)))
    yield published("rules for devices that are not there", *(_rule(i, device=f"no-{i}") for i in range(300)))
    yield published("32 requests for admin access to all", wanted=_admin())
    implicit = [device_class(f"class-{i}", "true", extendedResourceName=f"x.example.com/r{i}") for i in range(300)]
    yield published("300 classes with extended resources", *implicit)
    twins = [device_class(f"twin-{i}", "true", extendedResourceName="x.example.com/same") for i in range(300)]
    yield published("300 classes with one extended resource", *twins)
    for number in range(6):
        yield published(f"generated pools {number}", *_drawn(dice, f"drawn-{number}"), generated=True)


def _slice(name: str, driver: str, pool: str, devices: list[Body], count: int = 1, **spec: Any) -> Body:
    made = resource_slice(name, "", devices, **spec)
    made["spec"] |= {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": count}}
    if not spec.get("nodeName"):
        del made["spec"]["nodeName"]
    return made


def _devices(count: int, **fields: Any) -> list[Body]:
    return [{"name": f"d{i}", **fields} for i in range(count)]


def _long_names(index: int) -> Body:
    driver = f"{index:03}{_LONG_DRIVER}"[:63]
    devices = [{"name": f"{i:04}" + "n" * 59, "attributes": {f"{'a' * 28}{i:04}": {"bool": True}}} for i in range(32)]
    return _slice(f"long-{index}", driver, _LONG_POOL, devices, nodeName=f"node-{1 + index % NODES}")


def _open(name: str, devices: int, **where: Any) -> Body:
    return _slice(name, OWN, name, _devices(devices), **where)


def _wide(parts: int) -> list[Body]:
    return [_slice(f"wide-{i:03}", OWN, "wide", _named(i), parts, allNodes=True) for i in range(parts)]


def _named(part: int) -> list[Body]:
    return [{"name": f"d{part}-{i}"} for i in range(128)]


def _requirements(count: int) -> list[Body]:
    return [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(count)]


def _each_its_own(devices: int, requirements: int) -> Body:
    own = [
        {"name": f"d{i}", "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": _requirements(requirements)}]}}
        for i in range(devices)
    ]
    return _slice("each", OWN, "each", own, perDeviceNodeSelection=True)


def _partitions() -> list[Body]:
    counters = {f"c{i}": {"value": "7"} for i in range(32)}
    sets = [{"name": f"set-{i}", "counters": counters} for i in range(8)]
    few = {name: {"value": "1"} for name in list(counters)[:16]}
    consumers = [
        {"name": f"d{i}", "consumesCounters": [{"counterSet": f"set-{(i + k) % 8}", "counters": few} for k in (0, 1)]}
        for i in range(32)
    ]
    parts = [_slice("part-counters", OWN, "parts", [], 2, nodeName="node-5", sharedCounters=sets)]
    return [*parts, _slice("part-devices", OWN, "parts", consumers, 2, nodeName="node-5")]


def _parts(count: int) -> Body:
    return claim("of-driver", *(request(f"r{i}", cls=OWN) for i in range(count)))


def _conditional(devices: int) -> Body:
    """Allocated, and never ready."""
    waiting = {"bindsToNode": True, "bindingConditions": ["a", "b", "c", "d"], "bindingFailureConditions": ["e", "f"]}
    return _slice("conditional", OWN, "conditional", _devices(devices, **waiting), nodeName="node-6")


def _rule(index: int, **selector: Any) -> Body:
    taint = {"key": f"x.example.com/t{index}", "value": "v" * 63, "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": OWN, **selector}, "taint": taint}
    return {"apiVersion": _RULES, "kind": "DeviceTaintRule", "metadata": {"name": f"rule-{index}"}, "spec": spec}


def _admin() -> Body:
    return claim(
        "of-driver", *(request(f"r{i}", cls=DRIVER, allocationMode="All", adminAccess=True) for i in range(32))
    )


def _drawn(dice: random.Random, name: str) -> Iterator[Body]:
    """Pools that are open, incomplete, of several generations, or all of it."""
    for number in range(dice.randint(1, 20)):
        where: Body = dice.choice([{"allNodes": True}, {"nodeName": f"node-{dice.randint(1, NODES)}"}])
        made = _slice(f"{name}-{number}", OWN, f"{name}-{dice.randint(0, 3)}", _devices(dice.randint(1, 128)), **where)
        made["spec"]["pool"] |= {"generation": dice.randint(1, 3), "resourceSliceCount": dice.randint(1, 3)}
        yield made
    yield device_class(name, "true")
    yield pod(f"{name}-asking", "of-driver")
