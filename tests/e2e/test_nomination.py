"""Nomination ahead of the queue with the real kube-scheduler: one cycle, one node, and nothing left where it is wrong.

The scheduler of these tests has longer to wait for filter: while the call for a first pod is held, the others queue up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.disturbance import once, verb
from tests.e2e.ground import SCHEDULER, Ground
from tests.e2e.wire import Exchange

pytestmark = pytest.mark.e2e

PATIENT = SCHEDULER + "-patient"
MODE, NAMES = "DRA_EXTENDER_NOMINATE", "DRA_EXTENDER_SCHEDULER_NAMES"


@pytest.fixture(scope="module", autouse=True)
def nominating(ground: Ground) -> Iterator[None]:
    """The extender nominates, for one more scheduler."""
    before = dict(ground.extender.environment)
    ground.extender.stop()
    ground.extender.environment |= {MODE: "always", NAMES: f"{before[NAMES]},{PATIENT}"}
    ground.extender.start()

    def change(config: dict[str, Any]) -> None:
        config["leaderElection"]["leaderElect"] = False
        config["profiles"][0]["schedulerName"] = PATIENT
        config["extenders"][0]["httpTimeout"] = "60s"

    ground.start_scheduler(PATIENT, change=change)
    yield
    ground.plane.stop_component(PATIENT)
    ground.extender.stop()
    ground.extender.environment.clear()
    ground.extender.environment |= before
    ground.extender.start()


@contextmanager
def queued(case: Case) -> Iterator[None]:
    """Inside, kube-scheduler waits for the answer about another pod."""
    ground = case.ground
    asked: list[Exchange] = []
    go_on = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        asked.append(exchange)
        await go_on.wait()

    with ground.calls.rule(before=once(verb("filter", case.key("plug")), hold)):
        case.claim("plug", case.request(count=1, selectors=[{"cel": {"expression": "false"}}]))
        case.pod("plug", "plug", scheduler=PATIENT)
        ground.eventually(lambda: asked, "the call about the plug")
        try:
            yield
        finally:
            ground.call(go_on.set)


def waiting(case: Case, name: str, *requests: dict[str, Any], cpu: str = "", **spec: Any) -> None:
    case.claim(name, *requests)
    case.pod(name, name, scheduler=PATIENT, requests={"cpu": cpu} if cpu else None, **spec)


def nominated(case: Case, name: str) -> str:
    return str(case.stored_pod(name)["status"].get("nominatedNodeName", ""))


def until_nominated(case: Case, name: str) -> str:
    return case.ground.eventually(lambda: nominated(case, name), f"nomination of {name}")


def asked_about(case: Case, name: str) -> list[int]:
    """How many nodes each filter call for the pod named."""
    return [len(exchange.json["NodeNames"]) for exchange in case.ground.calls.calls("filter", case.key(name))]


def patches(case: Case, name: str) -> int:
    """How often the extender has written to the pod's status."""
    path = f"{case.pod_path(name)}/status"
    return sum(exchange.path == path for exchange in list(case.ground.api.log))


def test_a_nominated_pod_is_bound_on_its_node_in_one_cycle(case: Case) -> None:
    case.publish("node-1", 2)
    case.publish("node-2", 1)
    names = ["a", "b", "c"]
    with queued(case):
        for name in names:
            waiting(case, name)
        nodes = {name: until_nominated(case, name) for name in names}
    case.until_runs(*names)
    assert {name: case.node(name) for name in names} == nodes
    assert sorted(nodes.values()) == ["node-1", "node-1", "node-2"]
    assert [asked_about(case, name) for name in names] == [[1], [1], [1]]
    assert [nominated(case, name) for name in names] == ["", "", ""]
    assert [patches(case, name) for name in names] == [1, 1, 1]


def test_a_pod_whose_node_is_full_falls_back_and_loses_its_nomination(case: Case) -> None:
    case.publish("node-1", 1)
    case.publish("node-2", 1)
    with queued(case):
        waiting(case, "a", cpu="40")
        first = until_nominated(case, "a")
        case.pod("heavy", scheduler=PATIENT, requests={"cpu": "40"}, nodeName=first)
    other = {"node-1": "node-2", "node-2": "node-1"}[first]
    assert case.until_bound("a") == other
    assert nominated(case, "a") == ""


def test_a_nomination_is_withdrawn_when_the_pod_does_not_fit_any_more(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    with queued(case):
        waiting(case, "a")
        until_nominated(case, "a")
        case.claim("stranger")
        ground.run(case.allocate_elsewhere("stranger", "node-1"))
        ground.eventually(lambda: not nominated(case, "a"), "withdrawal")
        assert asked_about(case, "a") == []


def test_nothing_is_nominated_for_pods_that_fit_nowhere(case: Case) -> None:
    """So an autoscaler sees them as they are."""
    case.publish("node-1", 2)
    waiting(case, "devices", case.request(count=3))
    waiting(case, "cpu", cpu="100")
    case.until_refused("devices", "cannot allocate all claims")
    case.until_refused("cpu", "Insufficient cpu")
    waiting(case, "small")
    case.until_runs("small")
    time.sleep(3)
    assert [patches(case, name) for name in ("devices", "cpu")] == [0, 0]
    assert [nominated(case, name) for name in ("devices", "cpu")] == ["", ""]


def test_a_new_leader_nominates_anew_the_pods_that_still_fit(case: Case, ground: Ground) -> None:
    """The new leader removes both nominations. A stranger's claim has taken one of the nodes. It is reserved: an unused
    allocation would be released, and the pod could be bound on either node.
    """
    case.publish("node-1", 1)
    case.publish("node-2", 1)
    with queued(case):
        waiting(case, "a")
        waiting(case, "b")
        nodes = {name: until_nominated(case, name) for name in "ab"}
        ground.extender.kill()
        case.claim("stranger")
        ground.run(case.allocate_elsewhere("stranger", nodes["b"]))
        consumer = {"apiGroup": "example.com", "resource": "jobs", "name": "stranger", "uid": "stranger"}
        ground.patch(f"{case.claim_path('stranger')}/status", {"status": {"reservedFor": [consumer]}})
        before = patches(case, "a")
        ground.extender.start()
        ground.eventually(lambda: not nominated(case, "b"), "withdrawal")
        ground.eventually(lambda: patches(case, "a") > before, "removal")
    assert case.until_bound("a") == nodes["a"]


def test_what_somebody_else_has_nominated_stays(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.publish("node-2", 1)
    with queued(case):
        case.claim("a")
        case.pod("a", "a", scheduler=PATIENT, schedulingGates=[{"name": "example.com/later"}])
        ground.patch(f"{case.pod_path('a')}/status", {"status": {"nominatedNodeName": "node-2"}})
        ground.patch(case.pod_path("a"), {"spec": {"schedulingGates": None}})
        time.sleep(2)
        assert nominated(case, "a") == "node-2"
    assert case.until_bound("a") == "node-2"
    assert patches(case, "a") == 0


def test_pods_of_higher_priority_come_first(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    name = f"{case.name}-high"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    case.apply(body)
    ground.eventually(lambda: case.is_admitted(priorityClassName=name), "admission")
    with queued(case):
        waiting(case, "low")
        until_nominated(case, "low")
        waiting(case, "high", priorityClassName=name)
        until_nominated(case, "high")
        ground.eventually(lambda: not nominated(case, "low"), "withdrawal")
    assert case.until_bound("high") == "node-1"
    assert asked_about(case, "high") == [1]
    assert case.node("low") == ""
