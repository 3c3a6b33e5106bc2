"""Why a pod does not fit whose devices take more CPU or memory than the nodes have left, and what would help."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.insight.whatif.whatif import Changes
from dra_extender.insight.why.text import fully
from tests.support.diagnosis.hardware import device_class, node, pool
from tests.support.diagnosis.scene import Scene
from tests.support.questions import what_if
from tests.support.simulation.nodeamounts import costs, maps

Json = dict[str, Any]
GATE = "DRANodeAllocatableResources=true"
CLASS = device_class("gpu", 'device.driver == "gpu.example.com"')


def claim(name: str, **status: Any) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"kind": "ResourceClaim", "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": status}


def pod(name: str, used: str = "", cpu: str = "1", where: str = "", **spec: Any) -> Json:
    resources: Json = {"requests": {"cpu": cpu}}
    body: Json = {"containers": [{"name": "main", "resources": resources}], **spec}
    if used:
        resources["claims"] = [{"name": "c"}]
        body["resourceClaims"] = [{"name": "c", "resourceClaimName": used}]
    if where:
        body["nodeName"] = where
    return {"kind": "Pod", "metadata": {"name": name, "uid": f"pod-{name}"}, "spec": body}


def scene(*documents: Json, gates: str = GATE) -> Scene:
    return Scene([CLASS, *documents], gates=gates, release="1.37")


def machine(name: str, *devices: Json) -> list[Json]:
    """A node of 8 CPUs and 32Gi with these devices."""
    return [node(name), pool(name, "gpu.example.com", list(devices))]


@pytest.mark.parametrize(
    ("devices", "documents", "says"),
    [
        ([maps("8")], [], "devices fit on node n1, but cpu: the pod and its devices need 9, 8 free"),
        ([maps("6")], [pod("other", where="n1", cpu="2")], "cpu: the pod and its devices need 7, 6 free"),
        ([costs(resource="memory", perPod="33Gi")], [], "memory: the pod and its devices need 33Gi, 32Gi free"),
        ([maps("1Gi", resource="hugepages-1Gi")], [], "hugepages-1Gi: the pod and its devices need 1Gi, 0Gi free"),
    ],
)
def test_the_demand_and_what_is_free_are_named(devices: list[Json], documents: list[Json], says: str) -> None:
    found = scene(*machine("n1", *devices), claim("c"), pod("p", "c"), *documents).diagnose("p")
    assert (found.state, found.rule) == ("refused", "node allocatable"), found
    assert says in found.summary
    assert says.rpartition(", but ")[2] in fully(found, 200)


def test_nodes_with_equal_devices_differ_by_what_they_have_left() -> None:
    documents = [item for name in ("n1", "n2", "n3") for item in machine(name, maps("5"))]
    full = [pod("a", where="n1", cpu="3"), pod("b", where="n2", cpu="4")]
    found = scene(*documents, *full, claim("c"), pod("p", "c")).diagnose("p")
    assert (found.state, found.fits, found.examples) == ("fits", 1, ("n3",))
    obstacles = {group.nodes: [each.has for each in group.obstacles] for group in found.groups}
    assert obstacles == {("n1", "n2"): ["5"], ("n3",): []}


def test_a_pod_whose_end_leaves_enough_is_named() -> None:
    other = pod("other", where="n1", cpu="4", priority=0)
    asked = scene(*machine("n1", maps("5")), other, claim("c"), pod("p", "c", priority=10))
    found = asked.diagnose("p")
    assert found.remedies[0].text == "delete pod default/other, which has priority 0"
    assert asked.after(found.remedies[0]).diagnose("p").state == "fits"


def test_a_problem_that_no_node_can_solve_is_named_as_kube_scheduler_does() -> None:
    asked = pod("p", "c", resources={"requests": {"cpu": "2"}})
    found = scene(*machine("n1", maps("3")), claim("c"), asked).diagnose("p")
    text = (
        "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests"
    )
    assert text in found.summary


def test_without_the_gate_devices_take_nothing() -> None:
    assert scene(*machine("n1", maps("9")), claim("c"), pod("p", "c"), gates="").diagnose("p").state == "fits"


def test_what_if_counts_the_devices_of_each_pod_that_it_places() -> None:
    devices = [maps("3", name) for name in "abc"]
    documents = [*machine("n1", *devices), *(claim(f"c{index}") for index in range(3))]
    pods = [pod(f"p{index}", f"c{index}") for index in range(3)]
    view = scene(*documents, *pods).view()
    found = what_if(view, Changes())
    assert sorted(outcome.node for outcome in found.outcomes) == ["", "n1", "n1"]


def test_a_pod_that_moves_takes_its_demand_along() -> None:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1-gpu", "device": "a"}
    users = [{"resource": "pods", "name": "p", "uid": "pod-p"}]
    held = claim("c", allocation={"devices": {"results": [result]}}, reservedFor=users)
    running = pod("p", "c", where="n1")
    mapping = [{"name": "cpu", "quantity": "3"}]
    running["status"] = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c", "mapping": mapping}]}
    for free, expected in (("4", "n2"), ("5", "")):
        documents = [*machine("n1", maps("3")), *machine("n2", maps("3")), held, running]
        view = scene(*documents, pod("other", where="n2", cpu=free)).view()
        found = what_if(view, Changes(drain=("n1",)))
        assert [outcome.node for outcome in found.outcomes] == [expected]
