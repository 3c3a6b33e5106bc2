"""Random clusters whose nodes lack different things, and a pod that wants several things at once.

Selectors are conjunctions of equalities of strings (`truth` evaluates them without the CEL of the project).
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.diagnosis.hardware import CORDONED, ROOT, device_class, node, pool
from tests.support.diagnosis.mishaps import FAILING, MISSPELT, mishaps
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

GPU, NIC = "gpu.example.com", "nic.example.com"
MODELS = ("A", "B", "C")
RESOURCE = "example.com/nic"
TAINTS = ({"key": "broken", "effect": "NoSchedule"}, {"key": "reserved", "value": "lab", "effect": "NoExecute"})
NODE_TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
POD = "wants"
OFF = (
    "DRAAdminAccess", "DRAConsumableCapacity", "DRADeviceBindingConditions", "DRADeviceTaints", "DRAExtendedResource",
    "DRAPartitionableDevices", "DRAPrioritizedList",
)  # fmt: skip
"""Gates that may be off."""


@st.composite
def _gpus(draw: st.DrawFn, host: str) -> list[Json]:
    """Plain devices, some tainted; devices that share counters; or devices that several claims share."""
    kind = draw(st.sampled_from(("plain", "plain", "counters", "shared")))
    devices: list[Json] = []
    for index in range(draw(st.integers(1, 4))):
        attributes = {"model": {"string": draw(st.sampled_from(MODELS))}, ROOT: {"string": f"root-{index // 2}"}}
        device: Json = {"name": f"d{index}", "attributes": attributes, "capacity": {"memory": {"value": "40Gi"}}}
        if draw(st.integers(0, 4)) == 0:
            device["taints"] = [draw(st.sampled_from(TAINTS))]
        if draw(st.integers(0, 9)) == 0:
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        if kind == "counters":
            slots = {"value": str(draw(st.integers(1, 3)))}
            device["consumesCounters"] = [{"counterSet": "card", "counters": {"slots": slots}}]
        elif kind == "shared":
            device["allowMultipleAllocations"] = True
            default = {"default": "10Gi", "validRange": {"min": "1Gi"}}
            device["capacity"] = {"memory": {"value": "40Gi", "requestPolicy": default}}
        devices.append(device)
    if kind != "counters":
        return [pool(host, GPU, devices, count=draw(st.sampled_from((1,) * 14 + (2,))))]
    counters = [{"name": "card", "counters": {"slots": {"value": "4"}}}]
    return [
        pool(host, GPU, devices, count=2),
        pool(host, GPU, (), part="-counters", count=2, sharedCounters=counters),
    ]


@st.composite
def _nodes(draw: st.DrawFn) -> list[Json]:
    found: list[Json] = []
    for number in range(draw(st.sampled_from((1, 2, 3, 4) * 7 + (0,)))):
        name = f"n{number}"
        spec: Json = {}
        if draw(st.integers(0, 5)) == 0:
            spec = {"unschedulable": True, "taints": [CORDONED]}
        elif draw(st.integers(0, 4)) == 0:
            spec = {"taints": [NODE_TAINT]}
        found.append(node(name, labels={"zone": draw(st.sampled_from(("north", "south")))}, **spec))
        if draw(st.integers(0, 3)):
            found += draw(_gpus(name))
        if draw(st.integers(0, 2)) == 0:
            names = [f"nic-{index}" for index in range(draw(st.integers(1, 2)))]
            attributes = [{ROOT: {"string": f"root-{index}"}} for index in range(len(names))]
            found.append(
                pool(name, NIC, [{"name": n, "attributes": a} for n, a in zip(names, attributes, strict=True)])
            )
    return found


def _claim(name: str, requests: list[Json], constraints: list[Json]) -> Json:
    spec = {"devices": {"requests": requests, **({"constraints": constraints} if constraints else {})}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def _pod(name: str, *claims: str, **spec: Any) -> Json:
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    body = {"containers": [{"name": "main"}], "resourceClaims": entries, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


@st.composite
def _wanted(draw: st.DrawFn) -> Json:
    """What a request, or one of its alternatives, wants."""
    wanted: Json = {"deviceClassName": draw(st.sampled_from((*["gpu"] * 9, *["nic"] * 4, "fpga")))}
    if draw(st.integers(0, 4)) == 0:
        wanted["allocationMode"] = "All"
    else:
        wanted |= {"allocationMode": "ExactCount", "count": draw(st.sampled_from((1, 1, 1, 2, 2, 3)))}
    if wanted["deviceClassName"] == "gpu" and draw(st.booleans()):
        model = draw(st.sampled_from((*MODELS, *MODELS, "Z")))
        clauses = [f'device.attributes["{GPU}"].model == "{model}"']
        if draw(st.integers(0, 3)) == 0:
            clauses.append(f'device.driver == "{draw(st.sampled_from((GPU, NIC)))}"')
        wanted["selectors"] = [{"cel": {"expression": " && ".join(clauses)}}]
    if draw(st.integers(0, 4)) == 0:
        wanted["tolerations"] = [{**draw(st.sampled_from(TAINTS)), "operator": "Exists"}]
        wanted["tolerations"][0].pop("value", None)
    if wanted["deviceClassName"] == "gpu" and draw(st.integers(0, 4)) == 0:
        wanted["capacity"] = {"requests": {"memory": draw(st.sampled_from(("20Gi", "40Gi", "64Gi")))}}
    return wanted


@st.composite
def _request(draw: st.DrawFn, name: str) -> Json:
    if draw(st.integers(0, 4)) == 0:
        alternatives = [{"name": f"a{index}", **draw(_wanted())} for index in range(2)]
        return {"name": name, "firstAvailable": alternatives}
    return {"name": name, "exactly": draw(_wanted())}


@st.composite
def mixed(draw: st.DrawFn) -> Scene:
    """A cluster with up to three pods that run, and one that waits or would fit."""
    documents = draw(_nodes())
    documents += [
        device_class("gpu", f'device.driver == "{GPU}"'),
        device_class("nic", f'device.driver == "{NIC}"', RESOURCE),
        device_class("fpga", 'device.driver == "fpga.example.com"'),
        device_class(FAILING, f'device.driver == "{GPU}" && {MISSPELT}'),
    ]
    gates = f"{draw(st.sampled_from(OFF))}=false" if draw(st.integers(0, 3)) == 0 else ""
    scene = Scene(documents, gates=gates, release=draw(st.sampled_from(("1.36", "1.37"))))
    for number in range(draw(st.integers(0, 3))):
        exactly: Json = {"deviceClassName": draw(st.sampled_from(("gpu", "gpu", "nic"))), "count": 1}
        more = [_claim(f"of-{number}", [{"name": "r", "exactly": exactly}], []), _pod(f"busy-{number}", f"of-{number}")]
        tried = scene.with_more(more)
        if tried.fits(f"busy-{number}"):
            scene = tried.settled()
    claims: list[Json] = []
    for number in range(draw(st.integers(1, 2))):
        requests = [draw(_request(f"r{index}")) for index in range(draw(st.integers(1, 2)))]
        kind = draw(st.sampled_from(("", "", "matchAttribute", "distinctAttribute")))
        claims.append(_claim(f"c{number}", requests, [{kind: ROOT}] if kind else []))
    names = [claim["metadata"]["name"] for claim in claims]
    running = [item["metadata"]["name"] for item in scene.documents if item["kind"] == "ResourceClaim"]
    if running and draw(st.integers(0, 4)) == 0:
        names.append(draw(st.sampled_from(running)))
    spec: Json = {}
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"zone": draw(st.sampled_from(("north", "east")))}
    if draw(st.integers(0, 4)) == 0:
        amounts = {draw(st.sampled_from(("cpu", RESOURCE))): draw(st.sampled_from(("2", "20")))}
        spec["containers"] = [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
    pod = _pod(POD, *names, **spec)
    if draw(st.integers(0, 2)) == 0:
        scene = draw(mishaps(scene, claims, pod))
    return scene.with_more([*claims, pod])
