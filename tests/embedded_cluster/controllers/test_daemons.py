"""A pod on every node that fits, and the devices that come with the example driver's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from embedded_cluster import driver
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.controllers import daemons
from embedded_cluster.controllers.daemons import REVISION_LABEL
from embedded_cluster.controllers.podsets import template_hash
from embedded_cluster.objects import DaemonSet, FullNode, FullPod
from embedded_cluster.scheduler import SchedulerConfig

Json = dict[str, Any]


def daemon_set(*, image: str = "new", **spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "main", "image": image}], **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
    }


def owner(**spec: Any) -> DaemonSet:
    return convert(DaemonSet, daemon_set(**spec))


def node(name: str, effect: str = "", **labels: str) -> FullNode:
    taints = [{"key": "k", "effect": effect}] if effect else []
    return convert(FullNode, {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}})


def pod(name: str, where: str, phase: str = "Running", image: str = "new", *, version: int = 1, **meta: Any) -> FullPod:
    labels = {REVISION_LABEL: template_hash(owner(image=image).spec.template)}
    metadata = {"name": name, "resourceVersion": str(version), "labels": labels, **meta}
    return convert(FullPod, {"metadata": metadata, "spec": {"nodeName": where}, "status": {"phase": phase}})


ONE_SPEC: Json = {"nodeSelector": {"disk": "fast"}}
GONE = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("nodes", "pods", "spec", "create", "delete"),
    [
        ([node("a"), node("b")], [], {}, ["a", "b"], []),
        ([node("a"), node("b")], [pod("p", "a")], {}, ["b"], []),
        ([node("a", disk="fast"), node("b")], [], ONE_SPEC, ["a"], []),
        ([node("a")], [pod("p", "a")], ONE_SPEC, [], ["p"]),
        ([node("a")], [], {"nodeName": "b"}, [], []),
        ([node("a", "NoSchedule")], [], {}, [], []),
        ([node("a", "NoSchedule")], [pod("p", "a")], {}, [], []),
        ([node("a", "NoExecute")], [pod("p", "a")], {}, [], ["p"]),
        ([node("a", "PreferNoSchedule")], [], {}, ["a"], []),
        ([node("a", "NoSchedule")], [], {"tolerations": [{"operator": "Exists"}]}, ["a"], []),
        ([node("a")], [pod("p", "a", "Failed")], {}, ["a"], ["p"]),
        ([node("a")], [pod("p", "a", deletionTimestamp=GONE)], {}, [], []),
        ([node("a")], [pod("new", "a", version=9), pod("old", "a", version=2)], {}, [], ["new"]),
        ([], [pod("p", "a")], {}, [], ["p"]),
        ([node("a"), node("b")], [pod("p", "a", image="old"), pod("q", "b")], {}, [], ["p"]),
    ],
    ids=str,
)
def test_every_node_that_fits_has_one_pod(
    nodes: Sequence[FullNode], pods: Sequence[FullPod], spec: Json, create: list[str], delete: list[str]
) -> None:
    missing, surplus = daemons.plan(owner(**spec), {each.name: each for each in nodes}, pods)
    assert (missing, [pod.metadata.name for pod in surplus]) == (create, delete)


def test_pods_are_bound_to_their_node_and_tolerate_its_troubles() -> None:
    spec = msgspec.json.decode(daemons.daemon(owner(), "a")["spec"])
    assert spec["nodeName"] == "a"
    assert {"not-ready", "unschedulable"} <= {found["key"].partition("/")[2] for found in spec["tolerations"]}


@pytest.mark.parametrize(
    ("image", "env", "expected"),
    [
        ("registry.k8s.io/dra-example-driver/dra-example-driver:v0.1.0", [], 8),
        ("dra-example-driver", [{"name": "NUM_DEVICES", "value": "3"}], 3),
        ("localhost:5000/dra-example-driver@sha256:00", [{"name": "NUM_DEVICES", "value": "many"}], 8),
        ("dra-example-driver", [{"name": "NUM_DEVICES", "value": "4000"}], 128),
        ("example.com/dra-example-driver/other:v1", [], None),
        ("nvidia-dra-driver", [{"name": "NUM_DEVICES", "value": "3"}], None),
    ],
)
def test_the_example_driver_is_known_by_its_image(image: str, env: list[Json], expected: int | None) -> None:
    found = convert(FullPod, {"metadata": {}, "spec": {"containers": [{"name": "c", "image": image, "env": env}]}})
    assert driver.devices_of(found) == expected


async def test_daemons_follow_the_nodes_and_the_template(cluster: EmbeddedCluster) -> None:
    await cluster.schedule_with("", SchedulerConfig())
    await cluster.apply([daemon_set()])

    def placed(image: str) -> list[str]:
        found = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
        return sorted(each.spec.node_name for each in found if each.spec.containers[0].image == image)

    await cluster.wait_until(lambda: placed("new") == ["node-1", "node-2", "node-3"])
    await cluster.add_node(3, devices=0)
    await cluster.wait_until(lambda: placed("new") == ["node-1", "node-2", "node-3", "node-4"])
    await cluster.delete("nodes", "node-4")
    await cluster.wait_until(lambda: len(cluster.pods()) == 3)
    await cluster.apply([daemon_set(image="newer")])
    await cluster.wait_until(lambda: placed("newer") == ["node-1", "node-2", "node-3"] and not placed("new"))

    def status() -> Json:
        found: Json = cluster.store.get("daemonsets", "d", "default") or {}
        return dict(found.get("status", {}))

    await cluster.wait_until(lambda: status().get("updatedNumberScheduled") == status().get("numberReady") == 3)
    assert status()["observedGeneration"] == 2
    await cluster.delete("daemonsets", "d", "default")
    await cluster.wait_until(lambda: not cluster.pods())


async def test_what_keeps_pods_from_being_made_is_told_on_the_set(cluster: EmbeddedCluster) -> None:
    await cluster.apply([daemon_set(priorityClassName="none")])
    await cluster.wait_until(lambda: cluster.events("default", "d"))
    reason, note = cluster.events("default", "d")[0]
    assert (reason, note) == (
        "FailedCreate",
        'Error creating: pods "d-" is forbidden: no PriorityClass with name none was found',
    )


async def test_nodes_that_come_with_devices_keep_them(cluster: EmbeddedCluster) -> None:
    await cluster.schedule_with("", SchedulerConfig())
    cluster.controllers.driver_pods.linger = 0.1
    bare = await cluster.add_node(3, devices=0)
    await cluster.apply([daemon_set(image="dra-example-driver:v1")])

    def devices() -> dict[str | None, int]:
        return {part.spec.node_name: len(part.spec.devices) for part in cluster.slices()}

    await cluster.wait_until(lambda: bare in devices())
    assert devices() == {"node-1": 2, "node-2": 2, "node-3": 2, bare: 8}
    await cluster.delete("daemonsets", "d", "default")
    await cluster.wait_until(lambda: bare not in devices())
    assert devices() == {"node-1": 2, "node-2": 2, "node-3": 2}


async def test_a_driver_that_is_restarted_finds_its_devices(cluster: EmbeddedCluster) -> None:
    await cluster.schedule_with("", SchedulerConfig())
    bare = await cluster.add_node(3, devices=0)
    await cluster.apply([daemon_set(image="dra-example-driver:v1")])

    def slices() -> list[str]:
        return [part.metadata.uid for part in cluster.slices() if part.spec.node_name == bare]

    await cluster.wait_until(slices)
    before = slices()
    await cluster.apply([daemon_set(image="dra-example-driver:v2")])

    def restarted() -> int:
        running = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
        return sum(1 for pod in running if pod.spec.containers[0].image == "dra-example-driver:v2")

    await cluster.wait_until(lambda: restarted() == 4)
    assert slices() == before
