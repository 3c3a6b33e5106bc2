"""Partitions: what is broken already is used first, and what is used leaves room for the larger ones."""

from __future__ import annotations

import pytest

from app.api.decoding import convert
from app.api.resource import ResourceClaim
from app.placement.policies import PolicyName
from bench.placement import partitions
from tests.support.placement.gpunodes import DRIVER, NAMESPACE, GpuNodes


def add(made: GpuNodes, name: str, gpus: int) -> str:
    devices = [device for gpu in range(gpus) for device in partitions.devices(gpu)]
    return made.add_node(name, devices, counters=[partitions.counters(gpu) for gpu in range(gpus)])


def part(profile: str, name: str = "wanted", count: int = 1) -> ResourceClaim:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].profile == "{profile}"'}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": [selector]}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec})


def nodes(policy: PolicyName) -> GpuNodes:
    """One whole GPU on `whole`; on `broken` a whole one, and one with a 2g partition in use."""
    made = GpuNodes(policy)
    add(made, "whole", 1)
    add(made, "broken", 2)
    devices = made.devices(made.pod("first"), "broken", part("2g"))
    assert devices.startswith("gpu-0-2g")
    made.run(made.pod("first"), "broken", part("2g", "used"))
    return made


@pytest.mark.parametrize(("policy", "gpu"), [("pack", "gpu-0"), ("spread", "gpu-1")])
def test_a_whole_gpu_is_not_broken_while_another_is(policy: PolicyName, gpu: str) -> None:
    made = nodes(policy)
    assert made.devices(made.pod("p"), "broken", part("1g")).startswith(gpu)


def test_the_workload_says_which_gpus_stay_whole() -> None:
    made = nodes("fragmentation")
    for number in range(4):
        made.placement.learn(made.pod(f"large-{number}"), [part("7g")])
        made.placement.learn(made.pod(f"small-{number}"), [part("1g")])
    assert made.choose(made.pod("p"), part("1g")) == "broken"
    assert made.devices(made.pod("p"), "broken", part("1g")).startswith("gpu-0")


@pytest.mark.parametrize(
    ("policy", "devices"),
    [("first-fit", "gpu-0-1g-0"), ("pack", "gpu-0-1g-6")],
)
def test_a_small_partition_leaves_room_for_the_larger_ones(policy: PolicyName, devices: str) -> None:
    """At the beginning of the GPU it is in the way of 4g and 3g; at its end only of 7g and the other 3g."""
    made = GpuNodes(policy)
    add(made, "n", 1)
    assert made.devices(made.pod("p"), "n", part("1g")) == devices


def test_several_partitions_of_one_request_may_come_from_one_gpu() -> None:
    made = GpuNodes("pack")
    add(made, "n", 2)
    devices = made.devices(made.pod("p"), "n", part("1g", count=3)).split()
    assert {device[:5] for device in devices} == {"gpu-0"}
    assert len(set(devices)) == 3
