"""Claims that several pods use: when one more may not, the diagnosis says which pod has to end first."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.resource import MAX_CONSUMERS
from dra_extender.insight.why.text import fully
from dra_extender.scheduling import noderules
from dra_extender.scheduling.noderules import Port, taken_by
from tests.support.diagnosis.hardware import cluster, node
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]


def _pod(name: str, **spec: Any) -> Json:
    claims = [{"name": "c", "resourceClaimName": "shared"}]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": claims, **spec}}


def _shared(*users: str) -> Json:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "h1-gpu", "device": "gpu-0"}
    consumers = [{"resource": "pods", "name": user, "uid": f"pod-{user}"} for user in users]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "h100"}}]}}
    return {"kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": spec, "status": status}


def test_a_claim_with_as_many_consumers_as_it_may_have_is_free_for_another_when_one_ends() -> None:
    names = [f"user-{number}" for number in range(MAX_CONSUMERS)]
    scene = Scene([*cluster(), _shared(*names), *(_pod(name, nodeName="h1") for name in names[:3]), _pod("one-more")])
    found = scene.diagnose("one-more")
    assert (found.rule, found.claim) == ("claim full", "default/shared")
    assert found.summary == "claim shared has 256 consumers, which is the maximum"
    remedy = found.remedies[0]
    assert remedy.short == "wait for pod default/user-0"
    assert scene.after(remedy).diagnose("one-more").state == "fits"


def test_of_a_claim_that_is_allocated_on_one_node_the_node_is_named() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["h1"]}]}]
    claim = _shared("user")
    claim["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
    waits = _pod("waits", nodeSelector={"zone": "north"})
    found = Scene([*cluster(), claim, _pod("user", nodeName="h1"), waits]).diagnose("waits")
    elsewhere = "claim shared is allocated on node h1, and only pods on that node can use it"
    assert found.summary.startswith("node h1 (where claim shared is allocated): "), (
        "the only node that the claim can be used on is the closest"
    )
    assert fully(found, 200).count(elsewhere) == 4, "once for each group of other nodes"


def test_the_pod_that_listens_on_a_port_is_named() -> None:
    ports = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    taken = {"kind": "Pod", "metadata": {"name": "listens"}, "spec": {"nodeName": "h1", "containers": ports}}
    waits = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": ports}}
    found = Scene([node("h1"), taken, waits]).diagnose("p")
    assert found.rule == "host port"
    assert "host port 8080/TCP is in use by pod default/listens" in found.summary
    assert "wait for pod default/listens" in [remedy.short for remedy in found.remedies]


def test_of_a_gate_it_is_told_that_nothing_is_decided_before_it_is_removed() -> None:
    gated = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "example.com/quota"}]}}
    found = Scene([*cluster(), gated]).diagnose("p")
    assert found.rule == "scheduling gate"
    assert found.summary == "the pod is not scheduled until its scheduling gate example.com/quota is removed"
    assert [remedy.short for remedy in found.remedies] == ["remove gate example.com/quota"]


def test_of_several_pods_that_listen_the_one_on_the_reported_port_is_named() -> None:
    def listening(name: str, *numbers: int, **spec: Any) -> dict[str, Any]:
        ports = [{"containerPort": 80, "hostPort": number} for number in numbers]
        spec["containers"] = [{"name": "main", "ports": ports}]
        return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}

    taken = [listening("first", 9090, nodeName="h1"), listening("listens", 8080, nodeName="h1")]
    found = Scene([node("h1"), *taken, listening("p", 8080, 9090)]).diagnose("p")
    assert "host port 8080/TCP is in use by pod default/listens" in found.summary


def test_the_ports_of_a_pod_are_read_once_for_all_nodes_and_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counting(pod: Pod) -> frozenset[Port]:
        read.append(pod.metadata.name)
        return taken_by(pod)

    monkeypatch.setattr(noderules, "taken_by", counting)
    ports = [{"containerPort": 80, "hostPort": number} for number in range(8_000, 8_081)]
    containers = [{"name": "main", "ports": ports}]
    taken = [
        {"kind": "Pod", "metadata": {"name": f"{node}-{number}"}, "spec": {"nodeName": node, "containers": containers}}
        for node in ("h1", "h2")
        for number in range(5)
    ]
    wanting = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    found = Scene([node("h1"), node("h2"), *taken, wanting]).diagnose("p")
    assert found.rule == "host port"
    assert len([name for name in read if name != "p"]) == len(taken)
