"""In-tree filters and texts."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import requested
from dra_extender.api.decoding import convert
from embedded_cluster.objects import FullNode, FullPod
from embedded_cluster.scheduler import fit
from embedded_cluster.scheduler.fit import NodeRefusal, NodeUsage


def node(**more: Any) -> FullNode:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "2", "example.com/foo": "1"}}
    meta = {"name": "n1", "labels": {"zone": "a", "cores": "4"}}
    return convert(FullNode, {"metadata": meta, "status": status, **more})


def pod(spec: dict[str, Any] | None = None, requests: dict[str, str] | None = None) -> FullPod:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    return convert(FullPod, {"metadata": {"name": "p"}, "spec": {"containers": [container], **(spec or {})}})


def judge(pod: FullPod, node: FullNode, room: NodeUsage | None = None) -> NodeRefusal | None:
    return fit.obstacle(pod, requested(pod), node, room or NodeUsage(), lambda name: name == "claimed.example.com/gpu")


def affinity(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


TAINTED = {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}
CORDONED = {"spec": {"unschedulable": True}}


@pytest.mark.parametrize(
    ("spec", "node_parts", "want"),
    [
        ({}, {}, None),
        ({}, CORDONED, "node(s) were unschedulable"),
        ({"tolerations": [{"operator": "Exists"}]}, CORDONED, None),
        ({}, TAINTED, "node(s) had untolerated taint(s)"),
        ({"tolerations": [{"key": "k", "value": "v"}]}, TAINTED, None),
        ({"tolerations": [{"key": "k", "value": "w"}]}, TAINTED, "node(s) had untolerated taint(s)"),
        ({"tolerations": [{"key": "k", "effect": "NoExecute"}]}, TAINTED, "node(s) had untolerated taint(s)"),
        ({}, {"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}, None),
        ({"nodeSelector": {"zone": "a"}}, {}, None),
        ({"nodeSelector": {"zone": "b"}}, {}, "node(s) didn't match Pod's node affinity/selector"),
        (affinity("In", "b", "a"), {}, None),
        (affinity("NotIn", "a"), {}, "node(s) didn't match Pod's node affinity/selector"),
        (affinity("NotIn", "x", key="absent"), {}, None),
        (affinity("Exists"), {}, None),
        (affinity("DoesNotExist"), {}, "node(s) didn't match Pod's node affinity/selector"),
        (affinity("Gt", "3", key="cores"), {}, None),
        (affinity("Lt", "4", key="cores"), {}, "node(s) didn't match Pod's node affinity/selector"),
    ],
)  # fmt: skip
def test_a_node_is_refused_for_what_it_is(spec: dict[str, Any], node_parts: dict[str, Any], want: str | None) -> None:
    found = judge(pod(spec), node(**node_parts))
    assert (found.reasons[0] if found else None) == want
    assert found is None or not found.resolvable


@pytest.mark.parametrize(
    ("requests", "room", "want", "resolvable"),
    [
        ({"cpu": "4", "memory": "8Gi"}, NodeUsage(), (), False),
        ({"cpu": "4001m"}, NodeUsage(), ("Insufficient cpu",), False),
        ({"cpu": "2"}, NodeUsage({"cpu": 3 * 10**9}, 1), ("Insufficient cpu",), True),
        ({"cpu": "5", "memory": "9Gi"}, NodeUsage(), ("Insufficient cpu", "Insufficient memory"), False),
        ({}, NodeUsage({}, 2), ("Too many pods",), True),
        ({"example.com/bar": "1"}, NodeUsage(), ("Insufficient example.com/bar",), False),
        ({"example.com/bar": "0"}, NodeUsage(), (), False),
        ({"claimed.example.com/gpu": "1"}, NodeUsage(), (), False),
    ],
)
def test_a_node_is_refused_for_what_it_has(
    requests: dict[str, str], room: NodeUsage, want: tuple[str, ...], resolvable: bool
) -> None:
    found = judge(pod(requests=requests), node(), room)
    assert (found.reasons if found else ()) == want
    assert (found.resolvable if found else False) == resolvable


def test_init_containers_count_by_their_peak_and_sidecars_with_everything() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("1")],
        "initContainers": [container("1", restartPolicy="Always"), container("5")],
        "overhead": {"cpu": "100m"},
    }
    made = convert(FullPod, {"metadata": {"name": "p"}, "spec": spec})
    assert requested(made) == {"cpu": 6_100_000_000}


def test_reasons_are_counted_and_sorted_as_kube_scheduler_words_them() -> None:
    refusals = [("Insufficient cpu", "Insufficient memory"), ("node(s) were unschedulable",), ("Insufficient cpu",)]
    assert fit.text(3, refusals, fit.no_preemption(3, 1)) == (
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_nodes_dropped_without_a_reason_leave_a_gap_in_the_text() -> None:
    assert fit.text(3, [(), (), ()], fit.no_preemption(3, 0)) == (
        "0/3 nodes are available: preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_a_pod_that_makes_room_says_nothing_of_preemption() -> None:
    assert fit.text(1, [("Insufficient cpu",)], "") == "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(
    ("nodes", "percentage", "want"),
    [(50, 0, 50), (99, 1, 99), (1000, 0, 420), (5000, 0, 500), (6000, 0, 300), (5000, 100, 5000), (200, 10, 100)],
)
def test_the_search_stops_at_as_many_feasible_nodes_as_kube_scheduler_wants(
    nodes: int, percentage: int, want: int
) -> None:
    assert fit.sample_size(nodes, percentage) == want
