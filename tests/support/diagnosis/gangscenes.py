"""Random small clusters with a gang that waits, and a check of what is said about it.

The check tries every node for every pod of the gang, and every device for its claims, on the raw objects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any, Final

from hypothesis import strategies as st

from dra_extender.insight.why.statements import GangUnplaced
from tests.support.diagnosis.combinations import Combinations
from tests.support.diagnosis.facts import Facts, Json
from tests.support.diagnosis.hardware import CORDONED, device_class, node, pool
from tests.support.diagnosis.scene import Scene

GPU: Final = "gpu.example.com"
GANG, SIZE, REQUIRED = (f"dra-extender.dev/{name}" for name in ("gang", "gang-size", "topology-required"))
MEMBER: Final = "g-0"
CPU: Final = 8
"""Of a node."""


def claim(name: str, count: int = 1, model: str = "") -> Json:
    exactly: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if model:
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{GPU}"].model == "{model}"'}}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, cpu: int = 0, annotations: Json | None = None, **spec: Any) -> Json:
    """With the claim of its name."""
    amounts = {"cpu": str(cpu)} if cpu else {}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    body = {"containers": [container], "resourceClaims": [{"name": "c", "resourceClaimName": name}], **spec}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": body,
    }  # fmt: skip


def member(number: int, size: int, cpu: int = 0, **annotations: str) -> Json:
    return pod(f"g-{number}", cpu, {GANG: "g", SIZE: str(size), **annotations})


def host(name: str, devices: int, *, rack: str = "a", units: int = 0, cordoned: bool = False) -> list[Json]:
    """A node with GPUs; with `units`, each GPU consumes one of these units, which they share."""
    spec: Json = {"unschedulable": True, "taints": [CORDONED]} if cordoned else {}
    models = [{"name": f"d{index}", "attributes": {"model": {"string": "AB"[index % 2]}}} for index in range(devices)]
    found = node(name, labels={"rack": rack}, **spec)
    if not units:
        return [found, pool(name, GPU, models)]
    consumed = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
    shared = [{"name": "card", "counters": {"slots": {"value": str(units)}}}]
    devices_ = [{**each, "consumesCounters": consumed} for each in models]
    return [found, pool(name, GPU, devices_, count=2), pool(name, GPU, (), part="-c", count=2, sharedCounters=shared)]


CLASS: Final = device_class("gpu", f'device.driver == "{GPU}"')


@st.composite
def gangs(draw: st.DrawFn) -> Scene:
    """`MEMBER` is one of the pods of the gang."""
    documents: list[Json] = [CLASS]
    for number in range(draw(st.integers(1, 3))):
        units = draw(st.sampled_from((0, 0, 1, 2)))
        rack, cordoned = draw(st.sampled_from("ab")), draw(st.integers(0, 5)) == 0
        documents += host(f"n{number}", draw(st.integers(1, 3)), rack=rack, units=units, cordoned=cordoned)
    scene = Scene(documents)
    for number in range(draw(st.integers(0, 3))):
        tried = scene.with_more([claim(f"busy-{number}"), pod(f"busy-{number}")])
        if tried.fits(f"busy-{number}"):
            scene = tried.settled()
    count = draw(st.integers(2, 4))
    size = draw(st.sampled_from((count, count, count - 1, count + 1)))
    topology = {REQUIRED: "rack"} if draw(st.integers(0, 3)) == 0 else {}
    cpu = draw(st.sampled_from((0, 0, 3, 5)))
    more: list[Json] = []
    for number in range(count):
        devices = 2 if number and draw(st.integers(0, 4)) == 0 else 1
        model = draw(st.sampled_from(("", "", "", "A", "B", "Z"))) if draw(st.integers(0, 2)) == 0 else ""
        more += [claim(f"g-{number}", devices, model), member(number, size, cpu, **topology)]
    return scene.with_more(more)


def members(scene: Scene) -> list[Json]:
    return [item for item in scene.documents if item["kind"] == "Pod" and GANG in item["metadata"]["annotations"]]


def most(scene: Scene) -> int:
    """How many pods of the gang fit together."""
    names, facts = [each["metadata"]["name"] for each in members(scene)], Facts(scene, MEMBER)
    cpu = int(facts.pod["spec"]["containers"][0]["resources"]["requests"].get("cpu", "0"))
    racks = {name: facts.objects["Node", name]["metadata"]["labels"]["rack"] for name in facts.nodes}
    nodes = [name for name in facts.nodes if not facts.objects["Node", name]["spec"].get("unschedulable")]
    for size in range(len(names), 0, -1):
        for where in product(nodes, repeat=size):
            if REQUIRED in facts.pod["metadata"]["annotations"] and len({racks[name] for name in where}) > 1:
                continue
            if cpu and any(where.count(name) * cpu > CPU for name in nodes):
                continue
            for chosen in combinations(names, size):
                if _fit(scene, dict(zip(chosen, where, strict=True))):
                    return size
    return 0


def _fit(scene: Scene, places: dict[str, str]) -> bool:
    """One pod with the claims of all pods of a node has to fit there."""
    for name in set(places.values()):
        entries = [{"name": pod, "resourceClaimName": pod} for pod, where in places.items() if where == name]
        every = {"kind": "Pod", "metadata": {"name": "all"}, "spec": {"containers": [{}], "resourceClaims": entries}}
        if not Combinations(Facts(scene.with_more([every]), "all"), name).exist():
            return False
    return True


def placed(scene: Scene, statement: GangUnplaced) -> Scene:
    """The pods that fit together have their nodes and devices."""
    found = scene.with_more([])
    objects = {(item["kind"], item["metadata"]["name"]): item for item in found.documents}
    for place in statement.places:
        name = place.pod.partition("/")[2]
        devices: Sequence[Json] = [
            {"request": "r", "driver": driver, "pool": pool_, "device": device}
            for driver, pool_, device in (each.split("/") for each in place.devices)
        ]
        pod_ = objects["Pod", name]
        user = {"resource": "pods", "name": name, "uid": pod_["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": copy.deepcopy(devices)}}, "reservedFor": [user]}
        objects["ResourceClaim", name]["status"] = status
        pod_["spec"]["nodeName"] = place.node
    return found


def gang_problems(scene: Scene, statement: GangUnplaced) -> Iterator[str]:
    """What is wrong with the statement, but for its reasons."""
    facts, every = Facts(scene, MEMBER), members(scene)
    size = int(every[0]["metadata"]["annotations"][SIZE])
    if (statement.gang, statement.placed, statement.needed) != ("gang default/g", 0, size):
        yield f"the gang has {size} pods"
    if len(statement.places) != most(scene) or len(statement.places) >= size:
        yield f"{most(scene)} pods fit together"
    if statement.labels != (("rack",) if REQUIRED in facts.pod["metadata"]["annotations"] else ()):
        yield "the gang does not require these labels"
    taken = [device for place in statement.places for device in place.devices]
    owned = {"/".join(each) for each in facts.owned}
    if len(set(taken)) < len(taken) or set(taken) & owned:
        yield "devices are in use twice"
    for place in statement.places:
        if not set(place.devices) <= {"/".join(each.id) for each in facts.devices(place.node)}:
            yield f"{place.node} does not have the devices of {place.pod}"
    if statement.pod in {place.pod for place in statement.places}:
        yield f"{statement.pod} fits"
