"""Nodes of Karpenter: nodes that start may get devices soon, and a NodePool can have more nodes."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.insight.why.text import event_of
from tests.support.diagnosis.hardware import device_class, node, pool
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

GPU = "gpu.example.com"
POOL = {"karpenter.sh/nodepool": "gpu-h100"}
READY = {**POOL, "karpenter.sh/initialized": "true"}


def asking(name: str, count: int = 1, **more: Any) -> list[Json]:
    """A pod and its claim."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    entry = {"name": name, "resourceClaimName": name}
    spec = {"containers": [], "resourceClaims": [entry]}
    claim = {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    return [claim, {"kind": "Pod", "metadata": {"name": name, "uid": name, **more}, "spec": spec}]


def cluster(*documents: Json) -> Scene:
    return Scene([device_class("gpu", f'device.driver == "{GPU}"'), *documents])


def devices(host: str, count: int = 1) -> Json:
    return pool(host, GPU, [{"name": f"d{number}"} for number in range(count)])


NOTHING = "claim p: no node has a device of class gpu"


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([node("n0", labels=POOL)], f"Karpenter has not initialized node n0 yet; {NOTHING}; wait for the driver"),
        ([node("n0", labels=READY)], f"{NOTHING}; is its driver installed?"),
        (
            [node("n0", labels=POOL), node("n1", labels=READY), node("n2", labels=POOL)],
            f"Karpenter has not initialized nodes n0, n2 yet; {NOTHING}; wait for the driver",
        ),
    ],
    ids=["one starts", "none starts", "two start"],
)
def test_a_pod_without_devices_is_told_of_nodes_that_start(nodes: list[Json], says: str) -> None:
    event = event_of(cluster(*nodes, *asking("p")).diagnose("p"))
    assert event is not None
    assert (event.reason, event.note) == ("DevicesUnavailable", says)


def test_what_the_other_nodes_lack_comes_before_nodes_that_start() -> None:
    found = cluster(node("n0"), devices("n0"), node("n1", labels=POOL), *asking("p", 2)).diagnose("p")
    assert found.summary == (
        "claim p: 2 devices of class gpu requested, no node has more than 1; Karpenter has not initialized node n1 yet"
    )


def test_a_node_that_would_help_is_one_of_its_node_pool() -> None:
    device = {"request": "r", "driver": GPU, "pool": "n0-gpu", "device": "d0"}
    used, user = asking("busy")
    used["status"] = {"allocation": {"devices": {"results": [device]}}}
    user["spec"]["nodeName"] = "n0"
    found = cluster(node("n0", labels=READY), devices("n0"), used, user, *asking("p")).diagnose("p")
    assert "add a node of NodePool gpu-h100 like n0" in [remedy.short for remedy in found.remedies]


def test_a_gang_that_needs_several_nodes_is_told_how_many_of_a_node_pool() -> None:
    gang: Json = {"annotations": {"dra-extender.dev/gang": "g", "dra-extender.dev/gang-size": "3"}}
    pods = [each for number in range(3) for each in asking(f"g-{number}", **gang)]
    found = cluster(node("n0", labels=READY), devices("n0"), *pods).diagnose("g-0")
    assert "add 2 nodes of NodePool gpu-h100 like n0" in [remedy.short for remedy in found.remedies]
