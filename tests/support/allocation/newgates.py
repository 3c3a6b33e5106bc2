"""Random scenarios of the features that Kubernetes 1.37 adds; run as a module, it prints them as JSON lines.

A scenario depends on its number only. It turns some of the gates on: fractional ranges of capacity, compatibility
groups, derived attributes and optional node operations. `make -C tests/controlplane recording` writes the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.support.allocation.scenarios import (
    DRIVER,
    GATES,
    allocated,
    claim,
    device,
    first_available,
    resource_slice,
    scenario,
)
from tests.support.allocation.scenarios import ask as made

Json = dict[str, Any]

COUNT: Final = 2_400
NEW: Final = (
    "DRAFractionalCapacityRange",
    "DRADeviceCompatibilityGroups",
    "DRADerivedAttributes",
    "DRAOptionalNodeOperations",
)
SETS: Final = ("card", "card2")
AMOUNTS: Final = ("100m", "200m", "250m", "500m", "1", "1500m", "2", "3")
ODD: Final = ("100u", "9223372036854775807", "10E")
EXPRESSIONS: Final = (
    f'device.attributes["{DRIVER}"].numa',
    f'device.attributes["{DRIVER}"].numa + 1',
    f'device.attributes["{DRIVER}"].model',
    f'device.attributes["{DRIVER}"].model == "x" ? "left" : "right"',
    f'device.attributes["{DRIVER}"].numa == 0',
    f'semver(device.attributes["{DRIVER}"].model == "x" ? "1.2.3" : "1.2.4")',
    f'["a", device.attributes["{DRIVER}"].model]',
    f'device.attributes["{DRIVER}"].tags',
    f'device.attributes["{DRIVER}"].missing',
    f'dyn(device.attributes["{DRIVER}"].numa == 0 ? dyn("zero") : dyn(1))',
    f'device.attributes["{DRIVER}"].?missing.orValue(1)',
    f'["a", "b"].filter(x, x == device.attributes["{DRIVER}"].model)',
    "device.allowMultipleAllocations == true",
    "1.5",
    "dyn(1.5)",
    "dyn([1, true])",
    "device.driver",
    "1",
)  # fmt: skip


def _policy(random: Random) -> Json:
    chosen: Json = {"min": random.choice(AMOUNTS[:4]), "max": random.choice((*AMOUNTS[5:], "4", "10E"))}
    if random.random() < 0.9:
        chosen["step"] = random.choice(AMOUNTS[:5])
    return {"default": chosen["min"], "validRange": chosen}


def _device(random: Random, name: str, grouped: bool) -> Json:
    attributes: dict[str, object] = {"model": random.choice("xy"), "numa": random.randint(0, 1)}
    if random.random() < 0.2:
        attributes["tags"] = random.choice((["a"], ["a", "b"], ["b", "c"]))
    counters = None
    if random.random() < 0.6:
        sets = random.sample(SETS, random.choice((1, 1, 2)))
        counters = {name: {"slots": str(random.choice((0, 1, 1, 2)))} for name in sets}
    found = device(name, attributes, counters=counters)
    for part in found.get("consumesCounters", ()) if grouped else ():
        if random.random() < 0.8:
            part["compatibilityGroups"] = random.sample(("compute", "display", "render"), random.choice((1, 1, 2)))
    if random.random() < 0.4:
        found["capacity"] = {"memory": {"value": random.choice(("2", "4", "8", "10E"))}}
        if random.random() < 0.8:
            found["capacity"]["memory"]["requestPolicy"] = _policy(random)
        if random.random() < 0.8:
            found["allowMultipleAllocations"] = True
    return found


def _pool(random: Random, pool: str, skips: bool) -> Iterator[Json]:
    sets = {name: {"slots": str(random.randint(2, 8))} for name in SETS}
    count, devices = random.randint(2, 4), 0
    grouped = random.random() < 0.6
    yield resource_slice(name=f"{pool}-0", pool=pool, count=count, counters=sets)
    for number in range(1, count):
        names = [f"d{devices + index}" for index in range(random.randint(1, 3))]
        devices += len(names)
        where = random.choice(({"nodeName": "node-1"}, {"allNodes": True}, {"nodeName": "node-2"}))
        made = [_device(random, name, grouped) for name in names]
        item = resource_slice(made, name=f"{pool}-{number}", pool=pool, count=count, where=where)
        if skips and random.random() < 0.5:
            item["spec"]["skipNodeOperations"] = random.choice((["*"], ["NodeUnprepareResources"]))
        yield item


def _ask(random: Random, derived: list[Json]) -> Json:
    selector = random.choice(("", "", "", f'device.attributes["{DRIVER}"].model == "x"'))
    fields: Json = {"derivedAttributes": derived} if derived else {}
    if random.random() < 0.3:
        fields["capacity"] = {"requests": {"memory": random.choice(AMOUNTS * 4 + ODD)}}
    return made(None if random.random() < 0.1 else random.choice((1, 1, 2)), selector, **fields)


def _derived(random: Random, names: list[str]) -> list[Json]:
    chosen = [name for name in names if random.random() < 0.6]
    return [{"name": f"{DRIVER}/{name}", "expression": random.choice(EXPRESSIONS)} for name in chosen]


def _in_use(random: Random, pool: str, published: Json, number: int) -> Json:
    result: Json = {"pool": pool, "device": published["name"]}
    if published.get("allowMultipleAllocations"):
        share = f"00000000-0000-4000-8000-{number:012}"
        result |= {"shareID": share, "consumedCapacity": {"memory": random.choice(AMOUNTS[:6])}}
    return allocated(result, name=f"used-{number}")


def random_scenario(number: int) -> Json:
    """The scenario of this number."""
    random = Random(number)
    gates = {gate for gate in NEW if random.random() < 0.6}
    slices = [
        item for pool in ("pool", "other")[: random.randint(1, 2)] for item in _pool(random, pool, number % 4 == 0)
    ]
    constraints = [
        {random.choice(("matchAttribute", "distinctAttribute")): f"{DRIVER}/{name}"}
        for name in random.sample(("model", "numa", "tags", "made"), random.choice((0, 1, 1, 2)))
    ]
    names = [name.partition("/")[2] for each in constraints for name in each.values()]
    derives = "DRADerivedAttributes" in gates and number % 2 == 0
    requests: list[Json] = []
    for index in range(random.choice((1, 1, 2, 3))):
        alternatives = [
            _ask(random, _derived(random, names) if derives else []) for _ in range(random.choice((1, 1, 1, 2)))
        ]
        if len(alternatives) == 1:
            requests.append({"name": f"r{index}", "exactly": alternatives[0]})
        else:
            requests.append(first_available(f"r{index}", *alternatives))
    published = [(each["spec"]["pool"]["name"], item) for each in slices for item in each["spec"].get("devices", ())]
    in_use = [
        _in_use(random, pool, item, index) for index, (pool, item) in enumerate(published) if random.random() < 0.15
    ]
    features = [gate for gate in GATES if gate != "DRAListTypeAttributes" or random.random() < 0.5]
    found = scenario(slices, [claim(*requests, constraints=constraints)], in_use=in_use)
    node = {**found["node"], "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    return {
        **found,
        "name": str(number),
        "release": "1.37",
        "features": sorted({*features, *gates}),
        "node": node if random.random() < 0.6 else found["node"],
    }


if __name__ == "__main__":
    for index in range(COUNT):
        print(json.dumps(random_scenario(index)))
