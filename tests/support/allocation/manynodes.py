"""Many nodes with devices of one driver, the decisions about them, and what claims and slices are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.features import FeatureGates, Release
from dra_extender.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.overlay import Planned

Json = dict[str, Any]


class World:
    """Nodes n0, n1, ... with a pool of driver `gpu` each, and the decisions about them."""

    def __init__(self, gates: str = "", release: Release = "1.36") -> None:
        self.cluster = Cluster(FeatureGates.parse(gates, release))
        self.decisions = Decisions(self.cluster, share_ids=lambda: "share")
        self.names: list[str] = []
        self.version = 0
        self.put_class("any")

    def put_class(self, name: str, *selectors: str) -> None:
        spec = {"selectors": [{"cel": {"expression": selector}} for selector in selectors]}
        self.cluster.apply(Applied(convert(DeviceClass, {"metadata": {"name": name}, "spec": spec})))

    def add_node(self, *devices: Json, counters: Json | None = None, labels: Json | None = None, **status: Any) -> str:
        name = f"n{len(self.names)}"
        self.names.append(name)
        node = {"metadata": {"name": name, "labels": labels or {}}, "status": status}
        self.cluster.apply(Applied(convert(Node, node)))
        self.publish(name, *devices, counters=counters)
        return name

    def publish(self, node: str, *devices: Json, counters: Json | None = None, count: int = 0) -> None:
        listed = [{"name": f"d{index}", **device} for index, device in enumerate(devices)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": count or (2 if counters else 1)}
        spec = {"driver": "gpu", "pool": pool, "nodeName": node}
        self.put_slice(f"{node}-devices", spec | {"devices": listed})
        if counters:
            values = {name: {"value": value} for name, value in counters.items()}
            self.put_slice(f"{node}-counters", spec | {"sharedCounters": [{"name": "c", "counters": values}]})

    def put_slice(self, name: str, spec: Json) -> None:
        self.cluster.apply(Applied(_slice(name, spec)))

    def withdraw(self, node: str) -> None:
        """The slices of the node's devices go."""
        self.cluster.apply(Removed.of(_slice(f"{node}-devices", {"driver": "gpu", "pool": {"name": node}})))

    def take(self, claim: str, node: str, *devices: str, **more: Any) -> None:
        self.version += 1
        results = [{"request": "r", "driver": "gpu", "pool": node, "device": device, **more} for device in devices]
        metadata = {"name": claim, "namespace": "ns", "uid": claim, "resourceVersion": str(self.version)}
        status = {"allocation": {"devices": {"results": results}}} if devices else {}
        self.cluster.apply(Applied(convert(ResourceClaim, {"metadata": metadata, "status": status})))

    def ask(self, *claims: ResourceClaim) -> tuple[str, str]:
        """Fitting and refused nodes as text."""
        found = self.decisions.node_results(claims, self.names)
        assert not found.error
        return " ".join(found.fits), " ".join(found.refused)


def nodes(*devices: Sequence[Json], gates: str = "") -> World:
    """A world with a node for each list of devices."""
    world = World(gates)
    for listed in devices:
        world.add_node(*listed)
    return world


def _slice(name: str, spec: Json) -> ResourceSlice:
    return convert(ResourceSlice, {"metadata": {"name": name}, "spec": spec})


def wanted(*requests: Json, name: str = "wanted", **spec: Any) -> ResourceClaim:
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": {"requests": requests, **spec}}})


def exactly(count: int = 1, name: str = "r", **more: Any) -> Json:
    return {
        "name": name,
        "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count, **more},
    }


def all_of(**more: Any) -> Json:
    return {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All", **more}}


def selector(expression: str) -> Json:
    return {"selectors": [{"cel": {"expression": expression}}]}


def attributes(**values: Any) -> Json:
    kinds = {bool: "bool", int: "int", str: "string"}
    return {"attributes": {name: {kinds[type(value)]: value} for name, value in values.items()}}


def memory(value: str, **more: Any) -> Json:
    return {"capacity": {"memory": {"value": value, **more}}}


def units(value: str) -> Json:
    return {"consumesCounters": [{"counterSet": "c", "counters": {"u": {"value": value}}}]}


def planned(claim: str, node: str, *devices: str, **more: Any) -> Planned:
    """A claim that is not allocated, and the devices of the node it would get."""
    results = [{"request": "r", "driver": "gpu", "pool": node, "device": device, **more} for device in devices]
    return wanted(exactly(len(devices)), name=claim), convert(AllocationResult, {"devices": {"results": results}})
