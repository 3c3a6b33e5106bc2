"""Refused pods are placed as soon as something changes for them, slices included, which wake nobody by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dra_extender.api.resource import DeviceAttribute
from embedded_cluster import hardware
from tests.support.flows.flow import Flow

Make = Callable[..., dict[str, Any]]

NEW_MODEL = 'device.attributes["gpu.example.com"].model == "NEW"'


async def refused(flow: Flow, name: str = "p") -> None:
    await flow.cluster.wait_until(lambda: flow.reason("default", name)[0] == "Unschedulable")


async def plug(flow: Flow) -> None:
    device = hardware.gpu("node-2", 8)
    attributes = device.attributes | {"model": DeviceAttribute(string="NEW")}
    await flow.cluster.driver.add_device("node-2", msgspec.structs.replace(device, attributes=attributes))


async def test_a_new_device_wakes_the_pod_that_waits_for_it(flow: Flow, claim: Make, pod: Make) -> None:
    await flow.cluster.apply([claim("c", selector=NEW_MODEL), pod("p", claims={"gpu": "c"})])
    await refused(flow)
    await plug(flow)
    await flow.cluster.wait_until(lambda: flow.cluster.running("default", "p"))
    assert flow.devices("default", "c") == ["node-2/gpu-8"]


async def fill(flow: Flow, claim: Make, pod: Make) -> list[str]:
    """Pods with all 32 GPUs; returns their names."""
    names = [f"full-{number}" for number in range(32)]
    await flow.cluster.apply([claim("one", template=True), *(pod(name, templates={"gpu": "one"}) for name in names)])
    await flow.cluster.wait_until(lambda: flow.cluster.running("default", *names))
    return names


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pod finished", "pod deleted", "node added"])
async def test_a_full_cluster_takes_the_next_pod_when_there_is_room(
    flow: Flow, claim: Make, pod: Make, way: str
) -> None:
    cluster = flow.cluster
    names = await fill(flow, claim, pod)
    freed = flow.pod("default", names[7]).spec.node_name
    await cluster.apply([pod("p", templates={"gpu": "one"})])
    await refused(flow)
    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "pod finished": lambda: cluster.kubelet.finish("default", names[7]),
        "pod deleted": lambda: cluster.delete("pods", names[7], "default"),
        "node added": lambda: cluster.add_node(4),
    }
    await ways[way]()
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    assert flow.pod("default", "p").spec.node_name == ("node-5" if way == "node added" else freed)


async def test_a_tainted_device_is_taken_when_the_taint_goes(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await plug(flow)
    await cluster.driver.taint("node-2", "gpu-8", "broken", "NoSchedule")
    await cluster.apply([claim("c", selector=NEW_MODEL), pod("p", claims={"gpu": "c"})])
    await refused(flow)
    await cluster.driver.untaint("node-2", "gpu-8", "broken")
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    assert flow.devices("default", "c") == ["node-2/gpu-8"]


async def test_a_class_that_comes_late_wakes_its_pods(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("c", driver="late.example.com"), pod("p", claims={"gpu": "c"})])
    await refused(flow)
    meta = {"name": "late.example.com"}
    await cluster.apply([{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": meta, "spec": {}}])
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    assert len(flow.devices("default", "c")) == 1
