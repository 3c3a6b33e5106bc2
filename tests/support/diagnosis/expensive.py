"""Pods that cost as much to diagnose as their authors, or those of nodes and devices, can make them.

All of it is what an API server stores: within the 1.5 MiB of an object, with names and numbers as long as they may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Final

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from tests.support.diagnosis.stage import POD
from tests.support.simulation.objects import (
    DRIVER,
    Json,
    KubernetesObject,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tools.hostile.selectors import LONGEST, replaced

A: Final = f'device.attributes["{DRIVER}"]'
HOST: Final = "kubernetes.io/hostname"

Shape = Callable[[], Iterator[KubernetesObject]]
"""A cluster; the pod to diagnose is the one called `POD`."""


# --- what there is besides --------------------------------------------------------------------------------------------


def nodes(number: int, devices: int = 8, **labels: str) -> Iterator[KubernetesObject]:
    """Nodes of two kinds with room for anything, each device with a name of its own, and a class for all of them."""
    yield make_class()
    for index in range(number):
        name = f"n{index:05}"
        yield _node(name, {HOST: name, "zone": f"z{index % 3}", **labels})
        model = "H100" if index % 4 == 0 else "A100"
        yield make_slice(name, [_device(name, position, model) for position in range(devices)])


def _node(name: str, labels: Json, **spec: Any) -> Node:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return convert(
        Node,
        {
            "metadata": {"name": name, "uid": f"node-{name}", "labels": labels},
            "spec": spec,
            "status": {"allocatable": amounts},
        },
    )


def _device(node: str, index: int, model: str) -> Json:
    attributes = {"model": {"string": model}, "uuid": {"string": f"{node}-{index}"}, "numa": {"int": index // 4}}
    return {"name": f"gpu-{index}", "attributes": attributes}


def wish(*selectors: str, cls: str = "gpu", **fields: Any) -> Json:
    """The content of `exactly`, or of an alternative."""
    chosen = [{"cel": {"expression": text}} for text in selectors]
    base: Json = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": 1}
    return base | ({"selectors": chosen} if chosen else {}) | fields


def request(name: str, *selectors: str, **fields: Any) -> Json:
    return {"name": name, "exactly": wish(*selectors, **fields)}


def asking(*requests: Json, **more: Any) -> Iterator[KubernetesObject]:
    """A claim with these requests, and the pod."""
    yield make_claim("c", requests=requests)
    yield make_pod(POD, "c", **more)


def _filled(terms: Iterable[str], joint: str = " && ") -> str:
    """As many of the terms as a selector has room for."""
    found, size = [], 0
    for term in terms:
        size += len(term) + len(joint)
        if size > LONGEST:
            break
        found.append(term)
    return joint.join(found)


# --- selectors --------------------------------------------------------------------------------------------------------


def clauses() -> Iterator[KubernetesObject]:
    """Hundreds of clauses in each of 32 selectors, none of which holds."""
    yield from nodes(8)
    text = _filled(f'{A}.model == "H1{index:03}"' for index in count())
    yield from asking(*(request(f"r{index}", f'{text[:-4]}{index:03}"') for index in range(32)))


def misspelt_words() -> Iterator[KubernetesObject]:
    """A selector of unknown identifiers only."""
    yield from nodes(8)
    yield from asking(request("r", _filled((f'{A}.modl{index} == "{"x" * 40}{index}"' for index in count()), " || ")))


def truth() -> Iterator[KubernetesObject]:
    """One clause with thousands of truth values and numbers."""
    yield from nodes(8)
    values = ", ".join(["true", "1"] * 400)
    yield from asking(request("r", f'[{values}].size() == 0 || {A}.model == "X"'))


def strange_values() -> Iterator[KubernetesObject]:
    """128 devices with 32 attributes, all of whose values differ and resemble the word that is looked for."""
    yield make_class()
    yield make_node("n", cpu="8")
    devices = [
        {"name": f"d{device}", "attributes": {f"a{i}": {"string": f"{'ab' * 29}{device:03}{i:02}"} for i in range(32)}}
        for device in range(128)
    ]
    yield make_slice("n", devices)
    word = "ab" * 31
    text = _filled((f'{A}.a{index % 32} == "{word[: 60 - index % 9]}"' for index in count()), " || ")
    yield from asking(*(request(f"r{index}", text) for index in range(8)))


def long_texts() -> Iterator[KubernetesObject]:
    """A selector whose error is megabytes long."""
    yield from nodes(8)
    yield from asking(request("r", f'{A}[{replaced(2000, 2000)}] == "x"'))


def peculiar_values() -> Iterator[KubernetesObject]:
    """Values that look like numbers but are text."""
    yield make_class()
    yield make_node("n", cpu="8")
    texts = ("--5", "\u00b2", "1e", "9" * 60, "-")
    yield make_slice("n", [{"name": f"d{i}", "attributes": {"a": {"string": text}}} for i, text in enumerate(texts)])
    yield from asking(request("r", f'{A}.a == "7" && {A}.a.size() > {"9" * 18}'))


# --- claims -----------------------------------------------------------------------------------------------------------


def a_large_count() -> Iterator[KubernetesObject]:
    yield from nodes(8)
    yield from asking(request("r", count=2**62))


def alternatives() -> Iterator[KubernetesObject]:
    """32 requests with 8 alternatives each, with 16 tolerations and a selector each."""
    yield from nodes(8)
    tolerations = [{"key": f"key-{i}", "operator": "Exists", "effect": "NoSchedule"} for i in range(16)]
    text = f'{A}.modle == "H1000"'
    yield from asking(
        *(
            {
                "name": f"r{i}",
                "firstAvailable": [{"name": f"a{k}", **wish(text, count=9, tolerations=tolerations)} for k in range(8)],
            }
            for i in range(32)
        )
    )


def many_claims() -> Iterator[KubernetesObject]:
    """A pod with 1,000 claims for a class that does not exist, among 1,000 classes that resemble it."""
    yield from nodes(8)
    for index in range(1_000):
        yield make_class(f"{'gpu' * 20}-{index:04}")
    names = [f"c{index}" for index in range(1_000)]
    for name in names:
        yield make_claim(name, requests=[request("r", cls=f"{'gpu' * 20}-xxxx")])
    yield make_pod(POD, *names)


def missing_claims() -> Iterator[KubernetesObject]:
    """A pod with 2,000 claims that do not exist, among 3,000 that resemble them."""
    yield from nodes(8)
    for index in range(3_000):
        yield make_claim(f"{'claim-' * 9}{index:04}")
    yield make_pod(POD, *(f"{'claim-' * 9}x{index:03}" for index in range(2_000)))


def long_capacities() -> Iterator[KubernetesObject]:
    """Capacities with amounts of 900 digits and names that no device has."""
    yield from nodes(8)
    asked = {f"{'memory' * 8}{index}": "9" * 900 for index in range(32)}
    yield from asking(*(request(f"r{index}", capacity={"requests": asked}) for index in range(32)))


# --- pods -------------------------------------------------------------------------------------------------------------


def node_selectors() -> Iterator[KubernetesObject]:
    """5,000 labels to select nodes by, none of which a node has."""
    yield from nodes(1_000, 1)
    yield from asking(request("r"), nodeSelector={f"{'label' * 8}-{index}": "x" * 60 for index in range(5_000)})


def near_hosts() -> Iterator[KubernetesObject]:
    """The name of a node that is not there, among thousands that are nearly the same."""
    yield from nodes(5_000, 1)
    yield from asking(request("r"), nodeSelector={HOST: "n12345"})


def affinity() -> Iterator[KubernetesObject]:
    """Thousands of requirements with many values each."""
    yield from nodes(1_000, 1)
    values = [f"value-{index}" for index in range(100)]
    terms = [
        {"matchExpressions": [{"key": f"key-{index}", "operator": "In", "values": values}]} for index in range(500)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    yield from asking(request("r"), affinity={"nodeAffinity": required})


def tolerations() -> Iterator[KubernetesObject]:
    """Thousands of tolerations against a hundred taints of each of many nodes."""
    yield make_class()
    for number in range(200):
        taints = [{"key": f"k{index}", "value": f"n{number}", "effect": "NoSchedule"} for index in range(100)]
        yield _node(f"n{number}", {}, taints=taints)
        yield make_slice(f"n{number}", [f"n{number}-0"])
    tolerated = [{"key": f"key-{index}", "value": "x", "effect": "NoSchedule"} for index in range(5_000)]
    yield from asking(request("r"), tolerations=tolerated)


def device_taints() -> Iterator[KubernetesObject]:
    """16 taints on each of 128 devices, all different."""
    yield make_class()
    yield make_node("n", cpu="8")
    devices = [
        {
            "name": f"d{device}",
            "taints": [{"key": f"t{device}-{i}", "value": "v" * 63, "effect": "NoSchedule"} for i in range(16)],
        }
        for device in range(128)
    ]
    yield make_slice("n", devices)
    yield from asking(*(request(f"r{index}") for index in range(32)))


def containers() -> Iterator[KubernetesObject]:
    """2,000 containers that each ask for extended resources that no node offers, on nodes that offer many."""
    yield make_class()
    for number in range(500):
        yield make_node(f"n{number}", cpu="8", **{f"example.com/{'r' * 40}{index}": "4" for index in range(20)})
        yield make_slice(f"n{number}", [f"n{number}-0"])
    resources = {"requests": {"cpu": "1", f"example.com/{'r' * 40}x": "7"}}
    several = [{"name": f"c{index}", "resources": resources} for index in range(2_000)]
    yield from asking(request("r"), containers=several)


def host_ports() -> Iterator[KubernetesObject]:
    """10,000 ports that are wanted, and as many that are taken."""
    yield from nodes(8)
    ports = [{"containerPort": 1, "hostPort": 1 + index} for index in range(10_000)]
    for number in range(8):
        taken = [{"containerPort": 1, "hostPort": 20_000 + index} for index in range(9_999)]
        several = [{"name": "c", "ports": [*taken, {"containerPort": 1, "hostPort": 10_000}]}]
        yield make_pod(f"other-{number}", node=f"n{number:05}", containers=several)
    yield from asking(request("r"), containers=[{"name": "c", "ports": ports}])


# --- others -----------------------------------------------------------------------------------------------------------


def holders() -> Iterator[KubernetesObject]:
    """3,000 claims that share one device, each used by many pods."""
    yield make_class()
    yield make_node("n", cpu="8")
    capacity = {"memory": {"value": "3000", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}}
    yield make_slice("n", [{"name": "d", "allowMultipleAllocations": True, "capacity": capacity}])
    for index in range(3_000):
        result = {
            "request": "r", "driver": DRIVER, "pool": "n", "device": "d",
            "shareID": f"00000000-0000-4000-8000-{index:012}", "consumedCapacity": {"memory": "1"},
        }  # fmt: skip
        users = [{"resource": "pods", "name": f"u{index}-{i}", "uid": f"u{index}-{i}"} for i in range(8)]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
        meta = {"name": f"of-{index}", "namespace": "default", "uid": f"of-{index}"}
        yield convert(ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": []}}, "status": status})
        for i in range(2):
            yield make_pod(f"u{index}-{i}", f"of-{index}", node="n", uid=f"u{index}-{i}")
    yield from asking(*(request(f"r{i}", capacity={"requests": {"memory": "1"}}) for i in range(32)))


def many_pods() -> Iterator[KubernetesObject]:
    """20,000 pods that run on 200 nodes."""
    yield from nodes(200)
    for index in range(20_000):
        several = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
        yield make_pod(f"other-{index}", node=f"n{index % 200:05}", containers=several)
    yield from asking(request("r", count=9), containers=[{"name": "c", "resources": {"requests": {"cpu": "63"}}}])


def many_classes() -> Iterator[KubernetesObject]:
    """2,000 classes with long selectors and long names."""
    yield from nodes(8)
    for index in range(2_000):
        text = f'device.driver != "{"x" * 2_000}{index}" && {A}.model != "x"'
        meta = {"name": f"{'class' * 20}-{index}", "uid": f"class-{index}"}
        yield convert(DeviceClass, {"metadata": meta, "spec": {"selectors": [{"cel": {"expression": text}}]}})
    yield from asking(request("r", cls=f"{'class' * 20}-none"))


def scattered_counters() -> Iterator[KubernetesObject]:
    """8 × 32 counters and 64 devices that consume from two sets each."""
    yield make_class()
    yield make_node("n", cpu="8")
    counters = {f"c{i}": {"value": "64"} for i in range(32)}
    small = {name: {"value": "1"} for name in counters}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    sets = [{"name": f"set-{i}", "counters": counters} for i in range(8)]
    devices = [
        {
            "name": f"d{i}",
            "consumesCounters": [{"counterSet": f"set-{(i + k) % 8}", "counters": small} for k in range(2)],
        }
        for i in range(64)
    ]
    for name, content in (("counters", {"sharedCounters": sets}), ("devices", {"devices": devices})):
        spec: Json = {"driver": DRIVER, "nodeName": "n", "pool": pool, **content}
        yield convert(ResourceSlice, {"metadata": {"name": name, "uid": name}, "spec": spec})
    yield from asking(request("r", count=32), request("s", count=32))


# --- large clusters ---------------------------------------------------------------------------------------------------


def too_many() -> Iterator[KubernetesObject]:
    """5,000 nodes of 8 devices; 9 are asked for."""
    yield from nodes(5_000)
    yield from asking(request("r", count=9))


def misspelt() -> Iterator[KubernetesObject]:
    """5,000 nodes of 8 devices; the model is misspelt."""
    yield from nodes(5_000)
    yield from asking(request("r", f'{A}.model == "H1000"'))


def tainted() -> Iterator[KubernetesObject]:
    """5,000 nodes of 8 devices, cordoned or tainted or too small."""
    for index, item in enumerate(nodes(5_000)):
        if isinstance(item, Node):
            taints = [{"key": f"team-{index % 7}", "effect": "NoSchedule"}]
            yield _node(item.name, item.metadata.labels, unschedulable=index % 5 == 0, taints=taints)
        else:
            yield item
    needs = {"requests": {"cpu": "100", "memory": "1Ti"}}
    yield from asking(request("r", count=9), containers=[{"name": "c", "resources": needs}], nodeSelector={"zone": "x"})


def each_node_different() -> Iterator[KubernetesObject]:
    """5,000 nodes of 8 devices, each with something else in use, in its own way."""
    yield from nodes(5_000)
    for index in range(5_000):
        results = [
            {"request": "r", "driver": DRIVER, "pool": f"n{index:05}", "device": f"gpu-{device}"}
            for device in range(8)
            if index >> device & 1
        ]
        users = [{"resource": "pods", "name": f"u{index}", "uid": f"u{index}"}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
        meta = {"name": f"of-{index}", "namespace": "default", "uid": f"of-{index}"}
        yield convert(ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": []}}, "status": status})
        yield make_pod(f"u{index}", f"of-{index}", node=f"n{index:05}", uid=f"u{index}")
    yield from asking(request("r", f'{A}.model == "H100"', count=9), request("s", f"{A}.numa == 1", count=5))


SMALL: Final[tuple[Shape, ...]] = (
    clauses, misspelt_words, truth, strange_values, long_texts, peculiar_values, a_large_count, alternatives,
    many_claims, missing_claims, long_capacities, node_selectors, affinity, tolerations, device_taints, containers,
    host_ports, holders, many_pods, many_classes, scattered_counters,
)  # fmt: skip
LARGE: Final[tuple[Shape, ...]] = (near_hosts, too_many, misspelt, tainted, each_node_different)
