"""Closeness: of devices that cost the same, the pod gets those that belong together."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.resource import ResourceClaim
from dra_extender.placement.policies import PolicyName
from tests.support.placement.gpunodes import DRIVER, NAMESPACE, GpuNodes, gpus

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
ROOTS = ("a", "a", "b", "b", "c", "c", "d", "d")
NUMA = (0, 0, 0, 0, 1, 1, 1, 1)


def node(policy: PolicyName, *in_use: int) -> GpuNodes:
    """Eight GPUs, two behind each PCIe root, four on each NUMA node; some of them in use."""
    made = GpuNodes(policy)
    made.put_class("nic", driver="nic.example.com")
    devices = [
        {"name": f"gpu-{index}", "attributes": {ROOT: {"string": root}, NUMA_NODE: {"int": numa}}}
        for index, (root, numa) in enumerate(zip(ROOTS, NUMA, strict=True))
    ]
    made.add_node("n", devices)
    if in_use:
        take(made, "used", *in_use)
    return made


def take(made: GpuNodes, name: str, *gpus: int) -> ResourceClaim:
    """A claim that has these GPUs."""
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": f"gpu-{index}"} for index in gpus]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"}
    claim = convert(ResourceClaim, {"metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}})
    made.cluster.apply(Applied(claim))
    return claim


def wants(*requests: tuple[str, int], **devices: Any) -> ResourceClaim:
    """So many devices of each class."""
    listed = [
        {"name": f"r{number}", "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}}
        for number, (name, count) in enumerate(requests)
    ]
    metadata = {"name": "wanted", "namespace": NAMESPACE, "uid": "wanted"}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": {"requests": listed, **devices}}})


@pytest.mark.parametrize(
    ("in_use", "count", "first_fit", "pack"),
    [
        ((), 2, "gpu-0 gpu-1", "gpu-0 gpu-1"),
        ((0,), 2, "gpu-1 gpu-2", "gpu-2 gpu-3"),
        ((0,), 1, "gpu-1", "gpu-1"),
        ((2,), 1, "gpu-0", "gpu-3"),
        ((6,), 1, "gpu-0", "gpu-7"),
        ((0,), 4, "gpu-1 gpu-2 gpu-3 gpu-4", "gpu-4 gpu-5 gpu-6 gpu-7"),
        ((0, 5), 2, "gpu-1 gpu-2", "gpu-2 gpu-3"),
        ((0, 1, 2, 4), 3, "gpu-3 gpu-5 gpu-6", "gpu-5 gpu-6 gpu-7"),
    ],
)
def test_devices_that_belong_together_are_taken_together(
    in_use: tuple[int, ...], count: int, first_fit: str, pack: str
) -> None:
    expected_of: dict[PolicyName, str] = {"first-fit": first_fit, "pack": pack}
    for policy, expected in expected_of.items():
        made = node(policy, *in_use)
        found = made.devices(made.pod("p"), "n", wants(("gpu", count)))
        assert " ".join(sorted(found.split())) == expected, policy


def test_a_nic_is_taken_behind_the_root_of_the_gpu_without_a_constraint() -> None:
    made = node("pack", 0, 1, 2)
    made.publish_nics("n", 4, "d", "c", "b", "a")
    assert made.devices(made.pod("p"), "n", wants(("gpu", 1), ("nic", 1))) == "gpu-3 nic-2"
    first = node("first-fit", 0, 1, 2)
    first.publish_nics("n", 4, "d", "c", "b", "a")
    assert first.devices(first.pod("p"), "n", wants(("gpu", 1), ("nic", 1))) == "gpu-3 nic-0"


def test_devices_are_taken_close_to_those_that_the_pod_has_already() -> None:
    made = node("pack")
    has = take(made, "has", 4)
    assert made.devices(made.pod("p"), "n", wants(("gpu", 1)), beside=[has]) == "gpu-5"


def test_a_constraint_stays_a_must() -> None:
    made = node("pack", 0, 3, 4, 7)
    constraints = [{"matchAttribute": NUMA_NODE}]
    found = made.devices(made.pod("p"), "n", wants(("gpu", 2), constraints=constraints))
    assert found in ("gpu-1 gpu-2", "gpu-5 gpu-6")


def test_what_a_policy_wants_more_than_closeness_comes_first() -> None:
    """A share goes to the GPU that is begun, whatever it is close to."""
    made = GpuNodes("pack")
    devices = [
        {
            "name": f"gpu-{index}", "attributes": {ROOT: {"string": root}}, "allowMultipleAllocations": True,
            "capacity": {"milli": {"value": "1000"}},
        }
        for index, root in enumerate("aabb")
    ]  # fmt: skip
    made.add_node("n", devices)
    made.occupy("n", 0, 0, 0, 400)
    has = take(made, "has", 0)
    assert made.devices(made.pod("p"), "n", gpus(milli=300), beside=[has]) == "gpu-3"
