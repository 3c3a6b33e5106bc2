"""Pods whose specs are enormous, and other objects that the user of a namespace may write: large, or many.

Pure. Each pod waits for devices that no node has, so that it is decided on, diagnosed and planned for again and again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from tools.hostile.things import (
    DRIVER,
    HOSTILE,
    Body,
    Objects,
    Thing,
    claim,
    device_class,
    pod,
    request,
)

_NOTHING: Final = "device.driver == 'nobody.example.com'"
_RESOURCE: Final = "hostile.example.com/gpu"
_WHY: Final = "/insight/diagnosis?pod="


def things(dice: random.Random) -> Iterator[Thing]:
    """One pod each, or a few; then what is made for them."""
    yield _pods("17,000 terms of affinity", [_affine("terms", _terms(17_000))])
    yield _pods("8 pods with 17,000 terms each", [_affine(f"terms-{i}", _terms(17_000, str(i))) for i in range(8)])
    yield _pods("one term with 120,000 values", [_affine("values", [_one_term([f"v{i}" for i in range(120_000)])])])
    yield _pods("a selector of 20,000 labels", [_spec("labels", nodeSelector={f"k{i}": "v" for i in range(20_000)})])
    tolerated = [{"key": f"k{i}", "operator": "Exists"} for i in range(25_000)]
    yield _pods("25,000 tolerations", [_spec("tolerant", tolerations=tolerated)])
    yield _pods("10,000 rules of spreading", [_spec("spread", topologySpreadConstraints=_spreading(8_000))])
    yield _pods("4,000 terms about other pods", [_spec("social", affinity={"podAntiAffinity": _social(4_000)})])
    yield _pods("20,000 empty volumes", [_spec("volumes", volumes=[_volume(i) for i in range(20_000)])])
    yield _pods("5,000 containers with host ports", [_spec("ports", containers=[_port(i) for i in range(5_000)])])
    yield _pods("5,000 resources of its own", [_spec("resources", containers=[_many(5_000)])])
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": f"u{i}"} for i in range(10_000)]
    yield _pods("10,000 owners", [_waiting("owned", ownerReferences=owners)])
    policy = {"dra-extender.dev/placement": "fragmentation," * 15_000}
    yield _pods("a policy of 200 KiB", [_waiting("policy", annotations=policy)])
    yield _pods("gates", [_spec("gated", schedulingGates=[{"name": f"x.example.com/g{i}"} for i in range(20_000)])])
    yield _extended("2,000 init containers that borrow from 2,000", 2_000, 2_000)
    yield _extended("4,000 containers of one device each", 0, 4_000)
    yield Thing(
        "pod specs", "300 pods that wait, all different", Objects(tuple(_crowd(300)), pages=("/insight/problems",))
    )
    yield Thing("pod specs", "budgets of 15,000 requirements", Objects((*map(_budget, range(4)), *_crowd(4))))
    for number in range(6):
        yield _pods(f"generated pod spec {number}", [_random(dice, f"drawn-{number}")], generated=True)


def _pods(name: str, pods: list[Body], *, generated: bool = False) -> Thing:
    """The pods, with one shared claim that cannot be satisfied, and the question why the first of them waits."""
    wanted = claim("wanted", request("r", _NOTHING))
    page = f"{_WHY}{HOSTILE}/{pods[0]['metadata']['name']}"
    return Thing("pod specs", name, Objects((wanted, *pods), pages=(page,)), generated)


def _waiting(name: str, **metadata: Any) -> Body:
    return pod(name, "wanted", **metadata)


def _spec(name: str, **fields: Any) -> Body:
    made = _waiting(name)
    made["spec"] |= fields
    return made


def _affine(name: str, terms: list[Body]) -> Body:
    selector = {"nodeSelectorTerms": terms}
    return _spec(name, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}})


def _terms(count: int, value: str = "v") -> list[Body]:
    return [{"matchExpressions": [{"key": f"k{i}", "operator": "In", "values": [value]}]} for i in range(count)]


def _one_term(values: list[str]) -> Body:
    return {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": values}]}


def _spreading(count: int) -> list[Body]:
    return [
        {"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        for i in range(count)
    ]


def _social(count: int) -> Body:
    terms = [{"topologyKey": f"k{i}", "labelSelector": {"matchLabels": {"a": "b"}}} for i in range(count)]
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _volume(index: int) -> Body:
    return {"name": f"v{index}", "emptyDir": {}}


def _port(index: int) -> Body:
    return {"name": f"c{index}", "image": "none", "ports": [{"containerPort": 1 + index, "hostPort": 1 + index}]}


def _many(count: int) -> Body:
    amounts = {f"x.example.com/r{i}": "1" for i in range(count)}
    return {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}


def _extended(name: str, passing: int, lasting: int) -> Thing:
    """Containers that ask for devices by an extended resource; containers that end early return devices that the others
    take.
    """
    amounts = {_RESOURCE: "1"}

    def containers(prefix: str, count: int, amounts: Body) -> list[Body]:
        limits = {"requests": amounts, "limits": amounts}
        return [{"name": f"{prefix}{i}", "image": "none", "resources": limits} for i in range(count)]

    chosen = device_class("extended", f"device.driver == '{DRIVER}'", extendedResourceName=_RESOURCE)
    asking = pod("extended")
    asking["spec"] |= {
        "initContainers": containers("i", passing, {_RESOURCE: "1000000"}),
        "containers": containers("c", lasting, amounts),
    }
    return Thing("pod specs", name, Objects((chosen, asking), pages=(f"{_WHY}{HOSTILE}/extended",)))


def _crowd(count: int) -> Iterator[Body]:
    for index in range(count):
        yield claim(f"crowd-{index}", request("r", f"device.driver == 'nobody-{index}.example.com'"))
    for index in range(count):
        yield pod(f"crowd-{index}", f"crowd-{index}", labels={"app": f"crowd-{index}"})


def _budget(index: int) -> Body:
    """For whatever has none of these labels."""
    expressions = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(15_000)]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget-{index}", "namespace": HOSTILE},
        "spec": {"minAvailable": 1, "selector": {"matchExpressions": expressions}},
    }


def _random(dice: random.Random, name: str) -> Body:
    """Some of everything."""
    many = dice.randint(1, 3_000)
    made = _affine(name, _terms(many, f"v{dice.randint(0, 9)}"))
    drawn: Body = {
        "nodeSelector": {f"k{i}": "v" * dice.randint(0, 63) for i in range(dice.randint(0, 2_000))},
        "tolerations": [
            {"key": f"k{dice.randint(0, 9**9)}", "operator": "Exists"} for _ in range(dice.randint(0, 4_000))
        ],
        "volumes": [_volume(i) for i in range(dice.randint(0, 3_000))],
        "topologySpreadConstraints": _spreading(dice.randint(0, 2_000)),
        "containers": [_port(i) for i in range(dice.randint(1, 2_000))],
    }
    made["spec"] |= {field: value for field, value in drawn.items() if dice.random() < 0.6}
    return made
