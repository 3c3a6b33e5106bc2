"""The resource driver: what it publishes, and how pools change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Counter, CounterSet, Device, ResourceClaim
from embedded_cluster import hardware
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.driver import UnknownDeviceError, unready_devices, with_conditions
from embedded_cluster.hardware import DevicePool

Make = Callable[..., dict[str, Any]]


def published(cluster: EmbeddedCluster, node: str = "node-1") -> list[tuple[int, int, list[str]]]:
    """(generation, number of slices, device names) of each slice of the node."""
    return [
        (part.spec.pool.generation, part.spec.pool.resource_slice_count, [device.name for device in part.spec.devices])
        for part in cluster.slices()
        if part.spec.node_name == node
    ]


def test_gpus_look_like_those_of_the_example_driver() -> None:
    first, *_ = hardware.gpus(0, 8).devices
    assert first.name == "gpu-0"
    assert set(first.attributes) == {"index", "uuid", "model", "driverVersion", hardware.PCIE_ROOT}
    assert str(first.capacity["memory"].value) == "80Gi"
    roots = [device.attributes[hardware.PCIE_ROOT].string for device in hardware.gpus(0, 8).devices]
    assert len(set(roots)) == 4 and roots[0] == roots[1] != roots[2]


def test_every_fourth_node_has_small_gpus() -> None:
    memory = [str(hardware.gpus(index, 1).devices[0].capacity["memory"].value) for index in range(8)]
    assert memory == ["80Gi", "80Gi", "80Gi", "8Gi"] * 2


@pytest.mark.parametrize(
    ("devices", "most", "sizes"), [(8, 128, [8]), (130, 128, [128, 2]), (0, 128, [0]), (5, 2, [2, 2, 1])]
)
def test_pools_are_cut_into_slices(devices: int, most: int, sizes: list[int]) -> None:
    parts = hardware.slices(hardware.gpus(0, devices), 7, most=most)
    assert [len(part.spec.devices) for part in parts] == sizes
    assert {(part.spec.pool.generation, part.spec.pool.resource_slice_count) for part in parts} == {(7, len(sizes))}


def test_counters_are_in_a_slice_of_their_own() -> None:
    counters = CounterSet(name="c", counters={"memory": Counter(value=Quantity.parse("80Gi"))})
    parts = hardware.slices(DevicePool("d", "n", (Device(name="a"),), (counters,)), 1)
    assert [(len(part.spec.shared_counters), len(part.spec.devices)) for part in parts] == [(1, 0), (0, 1)]
    assert {part.spec.pool.resource_slice_count for part in parts} == {2}


async def test_devices_come_and_go_with_new_generations(cluster: EmbeddedCluster) -> None:
    assert published(cluster) == [(1, 1, ["gpu-0", "gpu-1"])]
    await cluster.driver.add_device("node-1", hardware.gpu("node-1", 2))
    assert published(cluster) == [(2, 1, ["gpu-0", "gpu-1", "gpu-2"])]
    await cluster.driver.remove_device("node-1", "gpu-0")
    assert published(cluster) == [(3, 1, ["gpu-1", "gpu-2"])]
    with pytest.raises(UnknownDeviceError, match="no device gpu-9"):
        await cluster.driver.remove_device("node-1", "gpu-9")


async def test_a_pool_is_incomplete_between_the_writes_of_a_generation(cluster: EmbeddedCluster) -> None:
    steps = cluster.driver.publish_in_steps(hardware.gpus(0, 130))
    written = [[generation for generation, _, _ in published(cluster)] async for _ in steps]
    assert written == [[2], [2, 2]]
    assert [(generation, count, len(names)) for generation, count, names in published(cluster)] == [
        (2, 2, 128),
        (2, 2, 2),
    ]
    await cluster.driver.publish(hardware.gpus(0, 1))
    assert published(cluster) == [(3, 1, ["gpu-0"])], "slices that are no longer needed are deleted"


async def test_a_taint_has_the_time_it_was_added_and_goes_again(cluster: EmbeddedCluster) -> None:
    await cluster.driver.taint("node-1", "gpu-1", "broken", "NoSchedule", "yes")
    part = next(part for part in cluster.slices() if part.spec.node_name == "node-1")
    (taint,) = part.spec.devices[1].taints
    assert (taint.key, taint.value, taint.effect) == ("broken", "yes", "NoSchedule") and taint.time_added
    await cluster.driver.untaint("node-1", "gpu-1", "broken")
    part = next(part for part in cluster.slices() if part.spec.node_name == "node-1")
    assert part.spec.devices[1].taints == ()


async def test_an_uninstalled_driver_leaves_no_slices(cluster: EmbeddedCluster) -> None:
    await cluster.driver.withdraw(hardware.GPU_DRIVER, "node-1")
    assert published(cluster) == []


async def test_slices_go_with_their_node(cluster: EmbeddedCluster) -> None:
    await cluster.delete("nodes", "node-2")
    await cluster.wait_until(lambda: published(cluster, "node-2") == [])
    assert published(cluster, "node-1")


async def test_a_node_can_be_added_while_the_cluster_runs(cluster: EmbeddedCluster) -> None:
    assert await cluster.add_node(3) == "node-4"
    assert published(cluster, "node-4") == [(1, 1, ["gpu-0", "gpu-1"])]


async def test_binding_conditions_of_allocated_devices_are_reported(
    cluster: EmbeddedCluster, claim: Make, allocate: Callable[..., Awaitable[None]]
) -> None:
    await cluster.apply([claim("c")])
    await allocate("default", "c", result={"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]})

    def conditions() -> list[tuple[str, str]]:
        found = cluster.claim("default", "c")
        devices = found.status.devices if found is not None else ()
        return [(condition.type, condition.status) for device in devices for condition in device.conditions]

    await cluster.wait_until(conditions)
    assert conditions() == [("Attached", "True")]


def test_reporting_keeps_other_devices_and_conditions() -> None:
    before = {
        "status": {
            "devices": [
                {"driver": "d", "pool": "p", "device": "a", "conditions": [{"type": "X", "status": "True"}]},
                {"driver": "d", "pool": "p", "device": "b"},
            ]
        }
    }
    after = with_conditions(before, ("d", "p", "a"), {"Y": "False"}, None, "2026-01-01T00:00:00Z")
    assert [(c["type"], c["status"]) for c in after["status"]["devices"][0]["conditions"]] == [
        ("X", "True"),
        ("Y", "False"),
    ]
    assert after["status"]["devices"][1] == {"driver": "d", "pool": "p", "device": "b"}


def test_a_failed_device_is_not_made_ready() -> None:
    result = {
        "request": "r", "driver": "d", "pool": "p", "device": "a",
        "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"],
    }  # fmt: skip
    status = {"allocation": {"devices": {"results": [result]}}}
    waiting = convert(ResourceClaim, {"metadata": {"name": "c"}, "status": status})
    assert list(unready_devices(waiting)) == [(("d", "p", "a"), None, ("Attached",))]
    failed = {"driver": "d", "pool": "p", "device": "a", "conditions": [{"type": "Failed", "status": "True"}]}
    given_up = convert(ResourceClaim, {"metadata": {"name": "c"}, "status": {**status, "devices": [failed]}})
    assert list(unready_devices(given_up)) == []
