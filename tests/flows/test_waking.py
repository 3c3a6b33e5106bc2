"""Refused pods are placed as soon as something changes for them, slices included, which wake nobody by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dra_extender.api.resource import DeviceAttribute
from embedded_cluster import hardware
from embedded_cluster.kubelet import RUN_SECONDS
from tests.support.embedded.manifests import claim_manifest, pod_manifest
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


async def test_pods_that_have_ended_give_their_devices_to_the_next(flow: Flow) -> None:
    """Six pods want all GPUs of a node, of which there are four; two others share a claim."""
    cluster = flow.cluster
    ends = {RUN_SECONDS: "0.1"}
    whole = claim_manifest("whole", template=True, allocationMode="All")
    await cluster.apply(
        [whole, *(pod_manifest(f"p{n}", templates={"gpus": "whole"}, annotations=ends) for n in range(6))]
    )
    await cluster.wait_until(lambda: [pod.status.phase for pod in cluster.pods("default")] == ["Succeeded"] * 6)
    await cluster.wait_until(lambda: not cluster.claims("default"), what="claims go with their pods")
    users = [pod_manifest(name, claims={"gpu": "shared"}, annotations=ends) for name in ("a", "b")]
    await cluster.apply([claim_manifest("shared"), *users])
    await cluster.wait_until(lambda: len([pod for pod in cluster.pods("default") if pod.finished]) == 8)
    await cluster.wait_until(lambda: not flow.results("default", "shared"), what="the GPU is free")
    assert flow.claim("default", "shared").status.reserved_for == ()
