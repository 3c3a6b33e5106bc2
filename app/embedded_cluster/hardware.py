"""What the nodes of the embedded cluster have: GPUs, as the example driver of Kubernetes publishes them.

Pure builders. `DevicePool` is all devices of one driver on one node; `slices` makes ResourceSlices of a generation.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dra_extender.api.decoding import to_builtins
from dra_extender.api.meta import ObjectMeta, format_time
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    GROUP,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

GPU_DRIVER = "gpu.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
SLICE_DEVICES = 128
"""Most devices that one ResourceSlice may list."""
TAINTED_SLICE_DEVICES = 64
"""Most devices of a slice in which any device has taints or consumes counters."""

BIG_GPU, SMALL_GPU = ("LATEST-GPU-MODEL", "80Gi"), ("SMALL-GPU-MODEL", "8Gi")
_SMALL_EVERY = 4
"""One node in this many, the last, has small GPUs."""
_PER_ROOT = 2
"""GPUs behind one PCIe root."""


class DevicePool(msgspec.Struct, frozen=True):
    """The devices of one driver on one node; the pool is called like the node."""

    driver: str
    node: str
    devices: tuple[Device, ...]
    counters: tuple[CounterSet, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.driver, self.node


def node_name(index: int) -> str:
    return f"node-{index + 1}"


def node(index: int, since: datetime | None = None) -> dict[str, Any]:
    """A node with room for pods, which is ready since then."""
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), format_time(since)) if since else {}
    name = node_name(index)
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": f"zone-{'abc'[index % 3]}",
            },
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    **times,
                }
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.37.2-embedded",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "embedded",
                "containerRuntimeVersion": "embedded://1",
            },
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }


def gpu(node: str, index: int, *, small: bool = False) -> Device:
    """One GPU like those of the example driver: index, uuid, model, driverVersion, PCIe root and memory."""
    model, memory = SMALL_GPU if small else BIG_GPU
    return Device(
        name=f"gpu-{index}",
        attributes={
            "index": DeviceAttribute(int_=index),
            "uuid": DeviceAttribute(string=f"gpu-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{index}')}"),
            "model": DeviceAttribute(string=model),
            "driverVersion": DeviceAttribute(version="1.0.0"),
            PCIE_ROOT: DeviceAttribute(string=f"pci0000:{16 * (index // _PER_ROOT):02x}"),
        },
        capacity={"memory": DeviceCapacity(value=Quantity.parse(memory))},
    )


def gpus(index: int, devices: int, *, small: bool | None = None) -> DevicePool:
    """The GPUs of the node with this number; unless `small` says otherwise, every fourth node has small ones."""
    name = node_name(index)
    little = index % _SMALL_EVERY == _SMALL_EVERY - 1 if small is None else small
    return DevicePool(GPU_DRIVER, name, tuple(gpu(name, number, small=little) for number in range(devices)))


def example_gpus(node: str, devices: int) -> DevicePool:
    """What a pod of the example driver publishes for its node."""
    return DevicePool(GPU_DRIVER, node, tuple(gpu(node, number) for number in range(devices)))


def slices(pool: DevicePool, generation: int, *, most: int = SLICE_DEVICES) -> list[ResourceSlice]:
    """The slices of one generation of the pool, at most `most` devices each; counters get a slice of their own."""
    limit = min(most, TAINTED_SLICE_DEVICES) if any(d.taints or d.consumes_counters for d in pool.devices) else most
    parts: list[Sequence[Device]] = [pool.devices[i : i + limit] for i in range(0, len(pool.devices), limit)]
    total = max(len(parts), 0 if pool.counters else 1) + bool(pool.counters)
    where = ResourcePool(name=pool.node, generation=generation, resource_slice_count=total)
    specs = [
        ResourceSliceSpec(driver=pool.driver, pool=where, node_name=pool.node, devices=tuple(part))
        for part in (parts or ([] if pool.counters else [()]))
    ]
    if pool.counters:
        shared = ResourceSliceSpec(driver=pool.driver, pool=where, node_name=pool.node, shared_counters=pool.counters)
        specs.insert(0, shared)
    return [
        ResourceSlice(metadata=ObjectMeta(name=slice_name(pool, number)), spec=spec)
        for number, spec in enumerate(specs)
    ]


def slice_name(pool: DevicePool, number: int) -> str:
    """The same in every generation, so that slices are replaced."""
    return f"{pool.node}-{pool.driver}-{number}"


def manifest(published: ResourceSlice, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    """The slice as JSON; `owner` is the ownerReference to its node."""
    body: dict[str, Any] = to_builtins(published)
    if owner is not None:
        body["metadata"]["ownerReferences"] = [owner]
    return {"apiVersion": f"{GROUP}/v1", "kind": "ResourceSlice", **body}
