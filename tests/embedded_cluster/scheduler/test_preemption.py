"""Making room: victims by the dry run, as the extender changes them, and the events about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dra_extender.api.decoding import convert
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.objects import FullNode, FullPod
from embedded_cluster.scheduler import preemption, takeover
from embedded_cluster.scheduler.cache import Cache
from tests.support.embedded.extender import ScriptedExtender

Make = Callable[..., dict[str, Any]]


def node(name: str) -> FullNode:
    return convert(FullNode, {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}})


def full(name: str, cpu: str, priority: int = 0, node: str = "n") -> FullPod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "priority": priority, "containers": [container]}
    return convert(FullPod, {"metadata": {"name": name, "uid": name}, "spec": spec})


@pytest.mark.parametrize(
    ("there", "asked", "priority", "victims"),
    [
        ([("a", "2", 0), ("b", "2", 0)], "2", 10, 1),
        ([("a", "2", 0), ("b", "2", 0)], "4", 10, 2),
        ([("a", "1", 0), ("b", "3", 5)], "1", 10, 1),
        ([("a", "4", 10)], "1", 10, None),
        ([("a", "4", 0)], "5", 10, None),
        ([], "1", 10, None),
    ],
)
def test_as_few_and_as_unimportant_pods_as_needed_would_go(
    there: list[tuple[str, str, int]], asked: str, priority: int, victims: int | None
) -> None:
    cache = Cache()
    cache.node_changed(None, node("n"))
    for name, cpu, importance in there:
        cache.bound(full(name, cpu, importance))
    wants = full("new", asked, priority, node="")
    found = preemption.dry_run(wants, {"cpu": int(asked) * 10**9}, ["n"], cache, lambda name: False)
    assert (len(found["n"]) if "n" in found else None) == victims
    assert all(victim.spec.priority == 0 for victim in found.get("n", []))
    assert cache.room("n").pods == len(there), "a dry run changes nothing"


def test_the_node_with_the_least_loss_is_taken() -> None:
    candidates = {
        "high": [full("a", "1", 9)],
        "many": [full("b", "1", 5), full("c", "1", 0)],
        "few": [full("d", "1", 5)],
    }
    assert preemption.best(candidates) == "few"


@pytest.fixture
async def crowded(cluster: EmbeddedCluster, extender: ScriptedExtender, pod: Make) -> EmbeddedCluster:
    """Every node is full of two pods of priority 0; a priority class exists; the scheduler runs."""

    async def bind(args: dict[str, Any]) -> dict[str, str]:
        name = args["PodName"]
        target = {"kind": "Node", "name": args["Node"]}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": args["PodUID"]},
            "target": target,
        }
        await cluster.client.create(f"/api/v1/namespaces/default/pods/{name}/binding", msgspec.json.encode(body))
        return {"Error": ""}

    extender.answers["bind"] = bind
    extender.answers["preempt"] = lambda args: {"NodeNameToMetaVictims": args["NodeNameToMetaVictims"]}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    await cluster.apply([kind])
    await cluster.apply([pod(f"low-{n}", containers=[asks("30")], nodeName=f"node-{n // 2 + 1}") for n in range(6)])
    await cluster.wait_until(lambda: cluster.running("default", *(f"low-{n}" for n in range(6))))
    await cluster.schedule_with(extender.url, takeover(extender.url, ("dra-scheduler",)))
    return cluster


def asks(cpu: str) -> dict[str, Any]:
    return {"name": "main", "image": "example", "resources": {"requests": {"cpu": cpu}}}


def message(cluster: EmbeddedCluster, name: str) -> str:
    found = cluster.pod("default", name)
    return found.condition.message if found is not None and found.condition is not None else ""


async def test_a_more_important_pod_takes_the_place_of_one_victim(
    crowded: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    await crowded.apply([pod("vip", priorityClassName="high", containers=[asks("20")])])
    await crowded.wait_until(lambda: crowded.running("default", "vip"))
    (args,) = [args for verb, args in extender.calls if verb == "preempt"]
    assert list(args) == ["Pod", "NodeNameToVictims", "NodeNameToMetaVictims"] and args["NodeNameToVictims"] is None
    assert {len(entry["Pods"]) for entry in args["NodeNameToMetaVictims"].values()} == {1}
    gone = {f"low-{n}" for n in range(6)} - {found.metadata.name for found in crowded.pods()}
    (victim,) = gone
    vip = crowded.pod("default", "vip")
    assert vip is not None and vip.spec.node_name == f"node-{int(victim[-1]) // 2 + 1}"
    event = ("Preempted", f"Preempted by pod {vip.metadata.uid} on node {vip.spec.node_name}")
    await crowded.wait_until(lambda: event in crowded.events("default", victim))


async def test_the_extender_may_veto_nodes_and_name_more_victims(
    crowded: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    uids = [crowded.pod("default", f"low-{n}").metadata.uid for n in (2, 3)]  # type: ignore[union-attr]
    victims = {"node-2": {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}}
    extender.answers["preempt"] = lambda args: {"NodeNameToMetaVictims": victims}
    await crowded.apply([pod("vip", priorityClassName="high", containers=[asks("20")])])
    await crowded.wait_until(lambda: crowded.running("default", "vip"))
    assert crowded.pod("default", "vip").spec.node_name == "node-2"  # type: ignore[union-attr]
    left = {"vip", "low-0", "low-1", "low-4", "low-5"}
    await crowded.wait_until(lambda: {found.metadata.name for found in crowded.pods()} == left)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({}, "no candidate node for preemption"),
        ({"node-1": {"Pods": []}}, 'expected at least one victim pod on node "node-1"'),
        ({"node-1": {"Pods": [{"UID": "x"}]}}, "but the pod is not found on that node"),
        (None, "failed preempt with extender at URL"),
    ],
)
async def test_without_the_extenders_consent_nobody_goes(
    crowded: EmbeddedCluster, extender: ScriptedExtender, pod: Make, answer: dict[str, Any] | None, told: str
) -> None:
    extender.answers["preempt"] = lambda args: (
        web.Response(status=503) if answer is None else {"NodeNameToMetaVictims": answer}
    )
    await crowded.apply([pod("vip", priorityClassName="high", containers=[asks("20")])])
    await crowded.wait_until(lambda: message(crowded, "vip"))
    assert message(crowded, "vip").startswith("0/3 nodes are available: 3 Insufficient cpu. preemption: ")
    assert told in message(crowded, "vip")
    assert len(crowded.pods()) == 7


async def test_pods_without_lower_ones_below_them_say_so(
    crowded: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    await crowded.apply([pod("equal", containers=[asks("20")])])
    await crowded.wait_until(lambda: message(crowded, "equal"))
    assert message(crowded, "equal") == (
        "0/3 nodes are available: 3 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
    )
    assert extender.counts["preempt"] == 0


async def test_device_shortage_evicts_nobody(crowded: EmbeddedCluster, extender: ScriptedExtender, pod: Make) -> None:
    extender.refuse("cannot allocate all claims")
    await crowded.apply([pod("vip", priorityClassName="high", containers=[asks("1")])])
    await crowded.wait_until(lambda: message(crowded, "vip"))
    assert extender.counts["preempt"] == 0 and len(crowded.pods()) == 7
