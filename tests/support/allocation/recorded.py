"""Random scenarios whose answers by Kubernetes 1.37 are recorded; run as a module, it prints them as JSON lines.

A scenario depends on its number only. Pools have slices for this node, for another one, for all and for selected nodes;
some slices are missing, outdated or define counters. `make -C tests/controlplane recording` writes the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.support.allocation.scenarios import (
    allocated,
    claim,
    device,
    first_available,
    request,
    resource_slice,
    scenario,
)
from tests.support.allocation.scenarios import ask as made

Json = dict[str, Any]

COUNT: Final = 2_400
SETS: Final = ("card", "card", "card2")


def _zone(name: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [name]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


PLACES: Final[tuple[Json, ...]] = (
    {"nodeName": "node-1"}, {"nodeName": "node-2"}, {"allNodes": True}, _zone("a"), _zone("b")
)  # fmt: skip


def _device(random: Random, name: str) -> Json:
    attributes: dict[str, object] = {"model": random.choice("xy"), "numa": random.randint(0, 1)}
    if random.random() < 0.1:
        attributes["tags"] = ["a", "b"]
    counters = {random.choice(SETS): {"slots": str(random.randint(1, 2))}} if random.random() < 0.4 else None
    capacity = {"memory": random.choice("468")} if random.random() < 0.4 else None
    multi = {"allowMultipleAllocations": True} if capacity and random.random() < 0.6 else {}
    return device(name, attributes, counters=counters, capacity=capacity, **multi)


def _pool(random: Random, pool: str, places: tuple[Json, ...]) -> Iterator[Json]:
    size, devices = random.randint(2, 5), 0
    count = max(1, size + random.choice((0,) * 18 + (1, -1)))
    sound = random.random() < 0.8
    for number in range(size):
        place: dict[str, Any] = {"pool": pool, "count": count, "generation": 1 if sound else random.randint(1, 2)}
        place |= {"name": f"{pool}-{number}", "where": random.choice(places)}
        if sound and number < 2:
            yield resource_slice(counters={SETS[number + 1]: {"slots": str(random.randint(1, 6))}}, **place)
            continue
        if not sound and random.random() < 0.35:
            yield resource_slice(counters={random.choice(SETS): {"slots": str(random.randint(1, 4))}}, **place)
            continue
        names = [f"d{devices + index}" for index in range(random.randint(1, 3))]
        devices += len(names)
        yield resource_slice([_device(random, name) for name in names], **place)


def _ask(random: Random, name: str) -> Json:
    def one() -> Json:
        selector = random.choice(("", "", 'device.attributes["gpu.example.com"].model == "x"'))
        capacity: Json = {"capacity": {"requests": {"memory": random.choice("245")}}} if random.random() < 0.3 else {}
        return made(None if random.random() < 0.15 else random.randint(1, 2), selector, **capacity)

    if random.random() < 0.25:
        return first_available(name, one(), one())
    found = request(name)
    return {**found, "exactly": one()}


def _in_use(random: Random, pool: str, published: Json, number: int) -> Json:
    result: Json = {"pool": pool, "device": published["name"]}
    if published.get("allowMultipleAllocations"):
        share = f"00000000-0000-4000-8000-{number:012}"
        result |= {"shareID": share, "consumedCapacity": {"memory": random.choice("24")}}
    return allocated(result, name=f"used-{number}")


def recorded(number: int) -> Json:
    """The scenario of this number."""
    random = Random(number)
    places = PLACES if number % 3 == 0 else PLACES[:1] + PLACES[2:4]
    slices = [item for pool in ("pool", "other")[: random.randint(1, 2)] for item in _pool(random, pool, places)]
    random.shuffle(slices)
    requests = [_ask(random, f"r{index}") for index in range(random.randint(1, 2))]
    constraints: list[Json] = []
    if random.random() < 0.3:
        kind = random.choice(("matchAttribute", "distinctAttribute"))
        constraints = [{kind: f"gpu.example.com/{random.choice(('model', 'numa', 'tags'))}"}]
    config = [{"requests": ["r0"], "opaque": {"driver": "gpu.example.com", "parameters": {}}}]
    published = {
        (item["spec"]["pool"]["name"], each["name"]): each
        for item in slices
        for each in item["spec"].get("devices", ())
    }
    in_use = [
        _in_use(random, pool, each, index)
        for index, ((pool, _), each) in enumerate(published.items())
        if random.random() < 0.15
    ]
    wanted = claim(*requests, constraints=constraints, config=config)
    found = scenario(slices, [wanted], in_use=in_use, labels={"zone": "a"}, off=["DRAListTypeAttributes"])
    return {**found, "name": str(number)}


if __name__ == "__main__":
    for index in range(COUNT):
        print(json.dumps(recorded(index)))
