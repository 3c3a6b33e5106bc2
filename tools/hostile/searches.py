"""Claims that are hard to decide on: families that one proof each decides, packings drawn from dice, and claims of a
grammar in which everything is expensive.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from tests.support.allocation.families import DECIDED_BY, distinct_pairs, shares_of_any_size
from tests.support.allocation.grammar import expensive
from tools.hostile.shapes import NODES, OWN
from tools.hostile.things import API, DRIVER, HOSTILE, Body, Objects, Thing, claim, device_class, pod, request

EXPENSIVE: Final = 20
"""Generated expensive claims."""


def things(dice: random.Random) -> Iterator[Thing]:
    """Decisions that are hard: on every node, with devices in different order, so that no two nodes share a verdict."""
    for number, (proof, case) in enumerate(DECIDED_BY.items()):
        yield Thing(
            "searches",
            f"what only {proof.name.lower()} decides",
            _search(dice, f"s{number}", case["slices"], case["claims"]),
        )
    case = shares_of_any_size(4, *dice.sample(range(10**9, 4 * 10**9), 31))
    yield Thing("searches", "shares of any size", _search(dice, "any", case["slices"], case["claims"]), generated=True)
    for number in range(4):
        yield Thing("searches", f"generated search {number}", _packing(dice, f"p{number}"), generated=True)


def expensive_claims(dice: random.Random) -> Iterator[Thing]:
    """Many constraints, alternatives, counters and shares: on every node, as for searches."""
    for copies in (4, 16):
        case = distinct_pairs(3, 5, copies)
        act = _search(dice, f"pairs-{copies}", case["slices"], case["claims"])
        yield Thing("expensive claims", f"pairs that differ, and {copies} copies of a constraint", act)
    for number in range(EXPENSIVE):
        case = expensive(dice, most_devices=33, most_claims=2)
        act = _search(dice, f"e{number}", case["slices"], case["claims"])
        yield Thing("expensive claims", f"generated expensive claim {number}", act, generated=True)


def _search(dice: random.Random, name: str, slices: list[Body], wanted: list[Body]) -> Objects:
    """A scenario of the search's families: its slices on each node, its claims as one pod's."""
    bodies: list[Body] = [device_class(name, f"device.driver == '{OWN}'")]
    for node in range(NODES):
        for number, part in enumerate(slices):
            spec = _renamed(part["spec"])
            spec |= {"driver": OWN, "nodeName": f"node-{node + 1}"}
            spec["pool"] = {**spec["pool"], "name": f"{name}-{node}"}
            if "devices" in spec:
                spec["devices"] = dice.sample(spec["devices"], len(spec["devices"]))
            metadata = {"name": f"{name}-{node}-{number}"}
            bodies.append({"apiVersion": API, "kind": "ResourceSlice", "metadata": metadata, "spec": spec})
    names = []
    for number, found in enumerate(wanted):
        names.append(f"{name}-{number}")
        spec = _renamed(found["spec"], cls=name)
        metadata = {"name": names[-1], "namespace": HOSTILE}
        bodies.append({"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
    return Objects((*bodies, pod(name, *names)))


def _renamed(value: Any, cls: str = "") -> Any:
    """The same for the hostile driver; a list of links becomes one link."""
    if isinstance(value, dict):
        made = {key: _renamed(item, cls) for key, item in value.items()}
        if cls and "deviceClassName" in made:
            made["deviceClassName"] = cls
        if "strings" in made:
            made = {"string": ",".join(made["strings"])}
        return made
    if isinstance(value, list):
        return [_renamed(item, cls) for item in value]
    return value.replace(DRIVER, OWN) if isinstance(value, str) else value


def _packing(dice: random.Random, name: str) -> Objects:
    """Shares that just do not fit into devices, by a different sum each."""
    devices = dice.randint(4, 10)
    content: list[Body] = [
        {
            "name": f"d{i}",
            "allowMultipleAllocations": True,
            "capacity": {"x": {"value": str(dice.randint(90, 110))}, "y": {"value": str(dice.randint(90, 110))}},
        }
        for i in range(devices)
    ]
    requests = []
    for index in range(min(32, devices * 3)):
        amounts = {"x": str(dice.randint(25, 40)), "y": str(dice.randint(25, 40))}
        requests.append(request(f"r{index}", capacity={"requests": amounts}))
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    part = {"spec": {"driver": DRIVER, "pool": pool, "devices": content}}
    return _search(dice, name, [part], [claim("c", *requests)])
