"""Partitions: what is broken already is used first, and what is used leaves room for the larger ones."""

from __future__ import annotations

import pytest

from dra_extender.placement.policies import PolicyName
from tests.support.placement.gpunodes import GpuNodes
from tests.support.placement.partitionednodes import add_partitioned, part


def nodes(policy: PolicyName) -> GpuNodes:
    """One whole GPU on `whole`; on `broken` a whole one, and one with a 2g partition in use."""
    made = GpuNodes(policy)
    add_partitioned(made, "whole", 1)
    add_partitioned(made, "broken", 2)
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
        made.learner.learn(made.pod(f"large-{number}"), [part("7g")])
        made.learner.learn(made.pod(f"small-{number}"), [part("1g")])
    assert made.choose(made.pod("p"), part("1g")) == "broken"
    assert made.devices(made.pod("p"), "broken", part("1g")).startswith("gpu-0")


@pytest.mark.parametrize(
    ("policy", "devices"),
    [("first-fit", "gpu-0-1g-0"), ("pack", "gpu-0-1g-6")],
)
def test_a_small_partition_leaves_room_for_the_larger_ones(policy: PolicyName, devices: str) -> None:
    """At the beginning of the GPU it is in the way of 4g and 3g; at its end only of 7g and the other 3g."""
    made = GpuNodes(policy)
    add_partitioned(made, "n", 1)
    assert made.devices(made.pod("p"), "n", part("1g")) == devices


def test_several_partitions_of_one_request_may_come_from_one_gpu() -> None:
    made = GpuNodes("pack")
    add_partitioned(made, "n", 2)
    devices = made.devices(made.pod("p"), "n", part("1g", count=3)).split()
    assert {device[:5] for device in devices} == {"gpu-0"}
    assert len(set(devices)) == 3
