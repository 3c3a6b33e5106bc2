"""Acceptance tests 45 and 46: preemption by kube-scheduler where it helps, and none where it cannot."""

from __future__ import annotations

import time

import pytest

from tests.e2e.case import Case
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e


def important(case: Case) -> str:
    """The name of a priority class above the default."""
    meta = {"name": case.name}
    case.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000})
    # Admission knows classes by a watch of its own, which may be behind what is stored.
    case.ground.eventually(lambda: case.is_admitted(priorityClassName=case.name), "admission of pods with the class")
    return case.name


def test_45_victims_fall_only_where_the_preemptor_finds_its_devices(case: Case, ground: Ground) -> None:
    fillers = {node: f"filler-{node}" for node in ground.nodes}
    for node, name in fillers.items():
        case.pod(name, node=node, requests={"cpu": "60"})
    case.until_runs(*fillers.values())
    case.publish("node-3", 1)
    case.claim("wanted")
    case.pod("preemptor", "wanted", requests={"cpu": "30"}, priorityClassName=important(case))
    assert case.until_bound("preemptor") == "node-3"
    calls = ground.calls.calls("preempt", case.key("preemptor"))
    assert set(calls[0].answer["NodeNameToMetaVictims"]) == {"node-3"}
    assert len(calls[0].json["NodeNameToMetaVictims"]) > 1
    del fillers["node-3"]
    assert case.bound(fillers.values()) == list(fillers.values())
    assert all("deletionTimestamp" not in case.stored_pod(name)["metadata"] for name in fillers.values())


def test_45_without_devices_anywhere_nobody_falls(case: Case, ground: Ground) -> None:
    case.pod("filler", node="node-1", requests={"cpu": "60"})
    case.until_runs("filler")
    case.claim("wanted")
    case.pod("preemptor", "wanted", node="node-1", requests={"cpu": "30"}, priorityClassName=important(case))
    case.until_refused("preemptor", "Insufficient cpu")
    ground.eventually(lambda: ground.calls.calls("preempt", case.key("preemptor")), "a preempt call")
    assert ground.answer(ground.calls.calls("preempt", case.key("preemptor"))[0]) == {"NodeNameToMetaVictims": {}}
    assert "deletionTimestamp" not in case.stored_pod("filler")["metadata"]


def test_46_for_devices_alone_an_important_pod_waits_and_nothing_loops(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.pod_with_claim("holder")
    case.until_runs("holder")
    case.claim("wanted")
    case.pod("important", "wanted", priorityClassName=important(case))
    case.until_refused("important", "Unschedulable", "cannot allocate all claims")
    time.sleep(3)
    assert len(ground.calls.calls("filter", case.key("important"))) < 10
    assert "deletionTimestamp" not in case.stored_pod("holder")["metadata"]
    case.delete_pod("holder")
    case.until_runs("important")
