"""Sets of equal pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.errors import ConflictError
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.controllers import podsets
from embedded_cluster.objects import FullPod, ReplicaSet


def deployment(count: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "example"}]},
            },
        },
    }


def owner(count: int) -> ReplicaSet:
    return convert(ReplicaSet, {"metadata": {"name": "d"}, "spec": {"replicas": count}})


def pod(name: str, version: int, phase: str = "Pending", node: str = "", **meta: Any) -> FullPod:
    metadata = {"name": name, "resourceVersion": str(version), **meta}
    return convert(FullPod, {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}})


def test_missing_pods_are_made_and_those_that_ended_replaced() -> None:
    pods = [
        pod("a", 1, "Running", "n"),
        pod("b", 2, "Succeeded", "n"),
        pod("c", 3, deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    assert podsets.plan(owner(3), pods) == (2, [])


def test_of_too_many_the_least_valuable_go() -> None:
    pods = [pod("runs", 1, "Running", "n"), pod("starts", 2, "Pending", "n"), pod("old", 3), pod("new", 4)]
    _, surplus = podsets.plan(owner(1), pods)
    assert [pod.metadata.name for pod in surplus] == ["new", "old", "starts"]


async def test_the_set_follows_its_size(cluster: EmbeddedCluster) -> None:
    await cluster.apply([deployment(3)])
    await cluster.wait_until(lambda: len(cluster.pods()) == 3)
    (name,) = {reference.name for found in cluster.pods() for reference in found.metadata.owner_references}
    (found,) = cluster.store.list("replicasets", "default")
    assert found["metadata"]["name"] == name
    assert found["metadata"]["ownerReferences"][0]["name"] == "d"
    await cluster.delete("pods", cluster.pods()[0].metadata.name, "default")
    await cluster.wait_until(lambda: len(cluster.pods()) == 3)
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    await cluster.client.patch(path, msgspec.json.encode({"spec": {"replicas": 1}}))
    await cluster.wait_until(lambda: len(cluster.pods()) == 1)
    await cluster.client.patch(f"{path}/scale", msgspec.json.encode({"spec": {"replicas": 2}}))
    await cluster.wait_until(lambda: len(cluster.pods()) == 2)
    scale = msgspec.json.decode(await cluster.client.get(f"{path}/scale"))
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "app=d")
    old = scale["metadata"].pop("resourceVersion")
    scale["spec"]["replicas"] = 1
    await cluster.client.replace(f"{path}/scale", msgspec.json.encode(scale))
    await cluster.wait_until(lambda: len(cluster.pods()) == 1)
    scale["metadata"]["resourceVersion"] = old
    with pytest.raises(ConflictError):
        await cluster.client.replace(f"{path}/scale", msgspec.json.encode(scale))

    def status() -> dict[str, Any]:
        found = cluster.store.get("deployments", "d", "default") or {}
        return {key: found.get("status", {}).get(key) for key in ("replicas", "unavailableReplicas")}

    await cluster.wait_until(lambda: status() == {"replicas": 1, "unavailableReplicas": 1})
    await cluster.delete("deployments", "d", "default")
    await cluster.wait_until(lambda: not cluster.pods())
