"""Nodes with GPUs that can be shared, CPU and memory, and pods that want some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.plan import Plan
from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.learner import PlacementLearner
from dra_extender.placement.policies import PlacementStrategy, PolicyName

Json = dict[str, Any]
DRIVER = "gpu.example.com"
NAMESPACE = "ns"


class GpuNodes:
    """A cluster of nodes with GPUs of 1000 milli, and the placement on it."""

    def __init__(self, policy: PolicyName = "first-fit", **strategy: Any) -> None:
        self.cluster = Cluster(FeatureGates())
        self.learner = PlacementLearner(self.cluster, PlacementStrategy(policy=policy, **strategy))
        self.placement = self.learner.placement
        self._numbers = 0
        self.decisions = Decisions(self.cluster, share_ids=self._share_id)
        self.names: list[str] = []
        self.put_class("gpu")

    def _share_id(self) -> str:
        self._numbers += 1
        return f"share-{self._numbers}"

    def put_class(self, name: str, *, driver: str = DRIVER, policy: str = "") -> None:
        selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
        annotations = {"dra-extender.dev/placement": policy} if policy else {}
        metadata = {"name": name, "annotations": annotations}
        self.cluster.apply(Applied(convert(DeviceClass, {"metadata": metadata, "spec": {"selectors": [selector]}})))

    def add(self, name: str, gpus: int, *, cpu: int = 64, memory: int = 256, model: str = "A") -> str:
        """A node with `cpu` cores and `memory` GiB."""
        devices = [
            {
                "name": f"gpu-{index}",
                "attributes": {"model": {"string": model}},
                "capacity": {"milli": {"value": "1000"}},
                "allowMultipleAllocations": True,
            }
            for index in range(gpus)
        ]
        return self.add_node(name, devices, cpu=cpu, memory=memory)

    def add_node(
        self, name: str, devices: list[Json], *, cpu: int = 64, memory: int = 256, counters: list[Json] | None = None
    ) -> str:
        amounts = {"cpu": str(cpu), "memory": f"{memory}Gi"}
        self.cluster.apply(Applied(convert(Node, {"metadata": {"name": name}, "status": {"allocatable": amounts}})))
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2 if counters else 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name}
        slices = [{**spec, "devices": devices}, *([{**spec, "sharedCounters": counters}] if counters else ())]
        for number, item in enumerate(slices):
            self.cluster.apply(
                Applied(convert(ResourceSlice, {"metadata": {"name": f"{name}-{number}"}, "spec": item}))
            )
        self.names.append(name)
        return name

    def pod(self, name: str, *, cpu: int = 1, memory: int = 1, node: str = "", policy: str = "") -> Pod:
        """With `cpu` cores and `memory` GiB."""
        requests = {"cpu": str(cpu), "memory": f"{memory}Gi"}
        annotations = {"dra-extender.dev/placement": policy} if policy else {}
        metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "annotations": annotations}
        spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}
        return convert(Pod, {"metadata": metadata, "spec": spec})

    def choose(self, pod: Pod, *claims: ResourceClaim) -> str:
        """The node that placement chooses of those that fit, by the newest weights."""
        self.learner.refresh()
        return self.placement.choose(pod, claims, self.decisions.node_results(claims, self.names).fits)

    def plan(self, pod: Pod, node: str, *claims: ResourceClaim, beside: Sequence[ResourceClaim] = ()) -> Plan:
        """The devices that the pod would get on the node, besides those of claims that are allocated."""
        found = self.decisions.plan(claims, node, self.placement.chooser(pod, claims, node, beside))
        assert isinstance(found, Plan), found
        return found

    def devices(self, pod: Pod, node: str, *claims: ResourceClaim, beside: Sequence[ResourceClaim] = ()) -> str:
        """The names of those devices."""
        plan = self.plan(pod, node, *claims, beside=beside)
        return " ".join(result.device for allocation in plan.allocations for result in allocation.devices.results)

    def run(self, pod: Pod, node: str, *claims: ResourceClaim) -> None:
        """The pod gets its devices and runs there."""
        plan = self.plan(pod, node, *claims)
        for claim, allocation in zip(claims, plan.allocations, strict=True):
            self._numbers += 1
            metadata = msgspec.structs.replace(claim.metadata, resource_version=str(self._numbers))
            status = msgspec.structs.replace(claim.status, allocation=allocation)
            self.cluster.apply(Applied(msgspec.structs.replace(claim, metadata=metadata, status=status)))
        self.learner.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))

    def occupy(self, node: str, *parts: int) -> None:
        """Take milli of the GPUs of the node, in order."""
        for index, milli in enumerate(parts):
            if milli:
                self._numbers += 1
                result = {
                    "request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{index}",
                    "shareID": self._share_id(), "consumedCapacity": {"milli": str(milli)},
                }  # fmt: skip
                name = f"used-{self._numbers}"
                metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": str(self._numbers)}
                status = {"allocation": {"devices": {"results": [result]}}}
                self.cluster.apply(Applied(convert(ResourceClaim, {"metadata": metadata, "status": status})))

    def publish_nics(self, node: str, count: int, *roots: str) -> None:
        """NICs of another driver on a node that is there, perhaps behind these PCIe roots."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices: list[Json] = [{"name": f"nic-{index}"} for index in range(count)]
        for device, root in zip(devices, roots, strict=False):
            device["attributes"] = {"resource.kubernetes.io/pcieRoot": {"string": root}}
        spec = {"driver": "nic.example.com", "pool": pool, "nodeName": node, "devices": devices}
        self.cluster.apply(Applied(convert(ResourceSlice, {"metadata": {"name": f"{node}-nics"}, "spec": spec})))


def gpus(count: int = 1, *, milli: int = 1000, name: str = "wanted", model: str = "") -> ResourceClaim:
    """A claim for GPUs, or for one share."""
    exactly: Json = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"milli": str(milli)}},
    }
    if model:
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{model}"'}}]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec})
