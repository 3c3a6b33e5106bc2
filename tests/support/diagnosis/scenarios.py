"""Random small clusters with a pod that may not fit, and every single change that could help it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from dra_extender.insight.why.report import Change
from tests.support.diagnosis.hardware import CORDONED, ROOT, device_class, node, pool
from tests.support.diagnosis.scene import Scene, apply, apply_to_node, copied, patch, release

Json = dict[str, Any]

DRIVER = "gpu.example.com"
CLASSES = ("small", "large")
TAINTS = ({"key": "broken", "effect": "NoSchedule"}, {"key": "reserved", "value": "lab", "effect": "NoExecute"})
NODE_TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
AMOUNTS = ("5Gi", "10Gi", "20Gi")
"""Of memory that devices have; requests may want twice the most."""
POD = "wants"


def _device(number: int, size: str, root: int, taint: int, memory: str) -> Json:
    attributes = {"size": {"string": size}, ROOT: {"string": f"root-{root}"}}
    device: Json = {"name": f"d{number}", "attributes": attributes, "capacity": {"memory": {"value": memory}}}
    return device | ({"taints": [TAINTS[taint]]} if taint < len(TAINTS) else {})


@st.composite
def _nodes(draw: st.DrawFn) -> list[Json]:
    found: list[Json] = []
    for number in range(draw(st.integers(1, 3))):
        name = f"n{number}"
        spec: Json = {}
        if draw(st.integers(0, 5)) == 0:
            spec = {"unschedulable": True, "taints": [CORDONED]}
        elif draw(st.integers(0, 4)) == 0:
            spec = {"taints": [NODE_TAINT]}
        found.append(node(name, labels={"zone": draw(st.sampled_from(("north", "south")))}, **spec))
        devices = [
            _device(
                index,
                draw(st.sampled_from(CLASSES)),
                index // 2,
                draw(st.integers(0, 5)),
                draw(st.sampled_from(AMOUNTS)),
            )
            for index in range(draw(st.integers(0, 4)))
        ]
        if devices:
            found.append(pool(name, DRIVER, devices))
    return found


def _claim(name: str, requests: list[Json], constraints: list[Json]) -> Json:
    spec = {"devices": {"requests": requests, **({"constraints": constraints} if constraints else {})}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def _pod(name: str, claim: str, **spec: Any) -> Json:
    body = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "c", "resourceClaimName": claim}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


@st.composite
def _request(draw: st.DrawFn, name: str) -> Json:
    exactly: Json = {"deviceClassName": draw(st.sampled_from((*CLASSES, "smal"))), "count": draw(st.integers(1, 4))}
    if draw(st.booleans()):
        size = draw(st.sampled_from((*CLASSES, "huge")))
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].size == "{size}"'}}]
    if draw(st.integers(0, 3)) == 0:
        exactly["capacity"] = {"requests": {"memory": draw(st.sampled_from((*AMOUNTS, "40Gi")))}}
    return {"name": name, "exactly": exactly}


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A cluster with up to two pods that run, and one that waits or would fit."""
    documents = draw(_nodes())
    documents += [
        device_class(name, f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].size == "{name}"')
        for name in CLASSES
    ]
    scene = Scene(documents)
    for number in range(draw(st.integers(0, 2))):
        request = {"name": "r", "exactly": {"deviceClassName": draw(st.sampled_from(CLASSES)), "count": 1}}
        priority = draw(st.sampled_from((-1, 0)))
        more = [
            _claim(f"of-busy-{number}", [request], []),
            _pod(f"busy-{number}", f"of-busy-{number}", priority=priority),
        ]
        tried = scene.with_more(more)
        if tried.fits(f"busy-{number}"):
            scene = tried.settled()
    requests = [draw(_request(f"r{index}")) for index in range(draw(st.integers(1, 2)))]
    constraints = [{"matchAttribute": ROOT}] if draw(st.integers(0, 2)) == 0 else []
    spec: Json = {}
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"zone": draw(st.sampled_from(("north", "South")))}
    if draw(st.integers(0, 4)) == 0:
        amounts = {"cpu": draw(st.sampled_from(("2", "20")))}
        spec["containers"] = [{"name": "main", "resources": {"requests": amounts}}]
    return scene.with_more([_claim("c", requests, constraints), _pod(POD, "c", **spec)])


# --- every single change ----------------------------------------------------------------------------------------------


def changed(scene: Scene) -> Iterator[tuple[str, Scene]]:
    """(what was changed, the scene with the change)"""
    for what, change in (*_of_claim(scene), *_of_pod(scene), *_of_others(scene)):
        documents = copied(scene.documents)
        change(documents)
        yield what, Scene(documents)


def _find(documents: list[Json], kind: str, name: str) -> Json:
    return next(item for item in documents if item["kind"] == kind and item["metadata"]["name"] == name)


def _of_claim(scene: Scene) -> Iterator[tuple[str, Any]]:
    devices = _find(scene.documents, "ResourceClaim", "c")["spec"]["devices"]
    for index, request in enumerate(devices["requests"]):
        path, exactly = f"/spec/devices/requests/{index}/exactly", request["exactly"]
        for count in range(1, exactly["count"]):
            yield f"count {count}", _patched("ResourceClaim", "c", "replace", f"{path}/count", count)
        for name in CLASSES:
            yield f"class {name}", _patched("ResourceClaim", "c", "replace", f"{path}/deviceClassName", name)
        for taints in (TAINTS[:1], TAINTS[1:], TAINTS):
            tolerations = [{**taint, "operator": "Equal"} for taint in taints]
            yield "tolerations", _patched("ResourceClaim", "c", "add", f"{path}/tolerations", tolerations)
        if "capacity" in exactly:
            yield "no capacity", _patched("ResourceClaim", "c", "remove", f"{path}/capacity", None)
            for amount in AMOUNTS:
                less = _patched("ResourceClaim", "c", "replace", f"{path}/capacity/requests/memory", amount)
                if AMOUNTS.index(amount) < (*AMOUNTS, "40Gi").index(exactly["capacity"]["requests"]["memory"]):
                    yield f"memory {amount}", less
        if "selectors" in exactly:
            for size in CLASSES:
                text = f'device.attributes["{DRIVER}"].size == "{size}"'
                yield (
                    f"size {size}",
                    _patched("ResourceClaim", "c", "replace", f"{path}/selectors/0/cel/expression", text),
                )
            yield "no selector", _patched("ResourceClaim", "c", "remove", f"{path}/selectors", None)
    if "constraints" in devices:
        yield "no constraint", _patched("ResourceClaim", "c", "remove", "/spec/devices/constraints", None)


def _of_pod(scene: Scene) -> Iterator[tuple[str, Any]]:
    spec = _find(scene.documents, "Pod", POD)["spec"]
    if "nodeSelector" in spec:
        yield "no node selector", _patched("Pod", POD, "remove", "/spec/nodeSelector", None)
    toleration = [{**NODE_TAINT, "operator": "Equal"}]
    yield "tolerate the node", _patched("Pod", POD, "add", "/spec/tolerations", toleration)
    yield "less CPU", _patched("Pod", POD, "replace", "/spec/containers/0", {"name": "main"})


def _of_others(scene: Scene) -> Iterator[tuple[str, Any]]:
    for document in scene.documents:
        name = document["metadata"]["name"]
        if document["kind"] == "Pod" and name != POD:
            yield f"without {name}", _without(name)
        if document["kind"] == "Node":
            yield f"one more like {name}", _added(name)
            if document["spec"].get("unschedulable"):
                yield f"uncordon {name}", _uncordoned(name)


def _patched(kind: str, name: str, op: str, path: str, value: Any) -> Any:
    return lambda documents: patch(_find(documents, kind, name), op, path, value)


def _without(name: str) -> Any:
    def change(documents: list[Json]) -> None:
        pod = _find(documents, "Pod", name)
        documents.remove(pod)
        release(documents, pod)

    return change


def _added(name: str) -> Any:
    change = Change(kind="node added", object="Node", name=f"{name}-more", op="create", like=name)
    return lambda documents: apply(documents, change)


def _uncordoned(name: str) -> Any:
    return lambda documents: apply_to_node(_find(documents, "Node", name), unschedulable=False)
