"""Nodes with GPUs that can be cut into partitions, and claims for those."""

from __future__ import annotations

from bench.placement import partitions
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from tests.support.placement.gpunodes import DRIVER, NAMESPACE, GpuNodes


def add_partitioned(made: GpuNodes, name: str, gpus: int) -> str:
    """A node with GPUs."""
    devices = [device for gpu in range(gpus) for device in partitions.devices(gpu)]
    return made.add_node(name, devices, counters=[partitions.counters(gpu) for gpu in range(gpus)])


def part(profile: str, name: str = "wanted", count: int = 1) -> ResourceClaim:
    """A claim for partitions of this profile."""
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].profile == "{profile}"'}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": [selector]}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec})
