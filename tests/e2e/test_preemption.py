"""Preemption for devices with the real kube-scheduler, API server and claim controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dra_extender.scheduling.nomination.nominations import PREEMPTING
from embedded_cluster.kubelet import STAYS
from tests.e2e.case import Case
from tests.e2e.extender import ROOT
from tests.e2e.gangs import annotation, names
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e

VARIABLE = "DRA_EXTENDER_PREEMPTION"
HOLD = "example.com/keeps-the-pod"
"""A finalizer: pods without a grace period are gone at once otherwise."""


@pytest.fixture(scope="module", autouse=True)
def on(ground: Ground) -> Iterator[None]:
    """The extender makes room, with the permissions of the component."""
    ground.plane.kubectl("apply", f"--filename={ROOT / 'manifests' / 'preemption' / 'permissions.yaml'}")
    switch(ground, "on")
    yield
    switch(ground, "off")


def switch(ground: Ground, mode: str) -> None:
    ground.extender.stop()
    ground.extender.environment[VARIABLE] = mode
    ground.extender.start()


@pytest.fixture
def classes(case: Case) -> tuple[str, str]:
    """The names of two priority classes above the default, the higher one last."""
    return priority_class(case, "high", 1000), priority_class(case, "higher", 2000)


def priority_class(case: Case, suffix: str, value: int, **more: str) -> str:
    """The name of a class that pods are admitted with."""
    name = f"{case.name}-{suffix}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    case.apply(body | more)
    case.ground.eventually(lambda: case.is_admitted(priorityClassName=name), "admission")
    return name


def filled(case: Case, **devices: int) -> list[str]:
    """Nodes with this number of devices each, and a pod of priority 0 on each device; the names of the pods."""
    names = []
    for node, number in devices.items():
        case.publish(node.replace("_", "-"), number)
        for index in range(number):
            name = f"{node.replace('_', '-')}-{index}"
            case.pod_with_claim(name, node=node.replace("_", "-"))
            names.append(name)
    case.until_runs(*names)
    return names


def keep(case: Case, name: str) -> None:
    """The pod, with what it uses, will go only when it is `let_go`."""
    case.ground.patch(case.pod_path(name), {"metadata": {"annotations": {STAYS: ""}, "finalizers": [HOLD]}})


def let_go(case: Case, name: str) -> None:
    case.ground.patch(case.pod_path(name), {"metadata": {"annotations": {STAYS: None}, "finalizers": []}})


def going(case: Case, *names: str) -> list[str]:
    """Those that are being deleted, or are gone."""

    def is_going(name: str) -> bool:
        pod = case.ground.pod(case.key(name))
        return pod is None or pod.metadata.deletion_timestamp is not None

    return [name for name in names if is_going(name)]


def until_going(case: Case, *names: str) -> str:
    """The first pod that is evicted."""
    case.ground.eventually(lambda: going(case, *names), f"the end of one of {names}")
    return going(case, *names)[0]


def events(case: Case, name: str) -> dict[str, str]:
    """By reason: the notes of events on the pod."""
    listed = case.ground.get(f"/apis/events.k8s.io/v1/namespaces/{case.name}/events")["items"]
    return {item["reason"]: item.get("note", "") for item in listed if item["regarding"].get("name") == name}


def told(case: Case, name: str, reason: str) -> str:
    case.ground.eventually(lambda: reason in events(case, name), f"event {reason} on {name}")
    return events(case, name)[reason]


def conditions(case: Case) -> set[str]:
    """The types of the conditions of the pod `important`."""
    return {condition["type"] for condition in case.stored_pod("important")["status"]["conditions"]}


def important(case: Case, name: str, priority: str, *requests: dict[str, Any], **spec: Any) -> None:
    case.claim(name, *requests)
    case.pod(name, name, priorityClassName=priority, **spec)


def test_an_important_pod_takes_the_device_of_an_unimportant_one(case: Case, classes: tuple[str, str]) -> None:
    victim, other = filled(case, node_1=1, node_2=1)
    important(case, "important", classes[0])
    node = case.until_bound("important")
    gone = {"node-1": victim, "node-2": other}[node]
    assert case.bound({victim, other} - {gone}) == list({victim, other} - {gone})
    assert f"pod {case.name}/{gone} on node {node}" in told(case, "important", "Preempting")
    assert f"preempted by pod {case.name}/important on node {node}" in told(case, gone, "Preempted")
    case.until_runs("important")


def test_the_nomination_lasts_until_the_victim_is_gone_and_the_pod_bound(
    case: Case, ground: Ground, classes: tuple[str, str]
) -> None:
    (victim,) = filled(case, node_1=1)
    keep(case, victim)
    important(case, "important", classes[0])
    until_going(case, victim)
    ground.eventually(lambda: case.stored_pod("important")["status"].get("nominatedNodeName"), "a nomination")
    case.claim("low")
    case.pod("low", "low")  # wakes the scheduler, which tries both
    case.until_refused("low", "cannot allocate all claims")

    def explained() -> bool:
        conditions = case.stored_pod(victim)["status"]["conditions"]
        return any(item.get("reason") == "PreemptionByScheduler" for item in conditions)

    ground.eventually(explained, "the condition on the victim")
    stored = case.stored_pod("important")
    assert stored["status"].get("nominatedNodeName") == "node-1"
    assert PREEMPTING in conditions(case)
    let_go(case, victim)
    assert case.until_bound("important") == "node-1"
    ground.eventually(lambda: PREEMPTING not in conditions(case), "the end")
    assert not case.node("low")


def test_two_pods_make_room_for_one_that_needs_two_devices(case: Case, classes: tuple[str, str]) -> None:
    names = filled(case, node_1=2)
    important(case, "important", classes[0], case.request(count=2))
    assert case.until_bound("important") == "node-1"
    assert sorted(going(case, *names)) == names


def test_what_a_budget_protects_stays_until_it_does_not(case: Case, ground: Ground, classes: tuple[str, str]) -> None:
    (victim,) = filled(case, node_1=1)
    ground.patch(case.pod_path(victim), {"metadata": {"labels": {"app": "protected"}}})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}
    case.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": case.where("budget"),
            "spec": spec,
        }
    )
    important(case, "important", classes[0])
    assert victim in told(case, "important", "PreemptionForbidden")
    assert going(case, victim) == []
    ground.delete(f"/apis/policy/v1/namespaces/{case.name}/poddisruptionbudgets/budget")
    assert case.until_bound("important", 90.0) == "node-1"


def test_pods_that_share_a_claim_go_together(case: Case, classes: tuple[str, str]) -> None:
    case.publish("node-1", 1)
    case.claim("shared")
    for name in ("one", "two"):
        case.pod(name, "shared")
    case.until_runs("one", "two")
    important(case, "important", classes[0])
    assert case.until_bound("important") == "node-1"
    assert going(case, "one", "two") == ["one", "two"]
    case.until_free("shared")


def test_a_pod_that_never_preempts_waits_and_equals_leave_each_other_alone(
    case: Case, classes: tuple[str, str]
) -> None:
    names = filled(case, node_1=1)
    important(case, "patient", priority_class(case, "patient", 1500, preemptionPolicy="Never"))
    case.pod_with_claim("equal")
    for name in ("patient", "equal"):
        case.until_refused(name, "cannot allocate all claims")
    important(case, "important", classes[1])
    assert case.until_bound("important") == "node-1"  # time in which the others could have acted has passed
    assert going(case, *names) == names
    assert not case.bound(("patient", "equal"))
    assert "Preempting" not in {**events(case, "patient"), **events(case, "equal")}


def test_a_victim_that_does_not_go_is_given_up(case: Case, classes: tuple[str, str]) -> None:
    names = filled(case, node_1=1, node_2=1)
    for name in names:
        keep(case, name)
    important(case, "important", classes[0])
    stuck = until_going(case, *names)
    (other,) = set(names) - {stuck}
    let_go(case, other)
    assert case.until_bound("important", 90.0) == other.removesuffix("-0")
    assert stuck in told(case, "important", "PreemptionStuck")
    let_go(case, stuck)


def test_a_pod_of_higher_priority_may_take_the_place(case: Case, ground: Ground, classes: tuple[str, str]) -> None:
    names = filled(case, node_1=1, node_2=1)
    for name in names:
        keep(case, name)
    important(case, "important", classes[0])
    first = until_going(case, *names)
    important(case, "higher", classes[1])
    let_go(case, first)
    ground.eventually(lambda: case.bound(("important", "higher")), "one binding")
    for name in set(names) - {first}:
        let_go(case, name)
    for name in ("important", "higher"):
        case.until_bound(name, 90.0)
    assert sorted(going(case, *names)) == sorted(names)


def test_a_restart_in_the_middle_evicts_nobody_else(case: Case, ground: Ground, classes: tuple[str, str]) -> None:
    names = filled(case, node_1=1, node_2=1)
    for name in names:
        keep(case, name)
    important(case, "important", classes[0])
    victim = until_going(case, *names)
    ground.extender.kill()
    case.claim("low")
    case.pod("low", "low")
    ground.extender.start()
    let_go(case, victim)
    case.until_bound("important")
    assert going(case, *names) == [victim]
    assert not case.node("low")
    for name in set(names) - {victim}:
        let_go(case, name)


def test_a_gang_evicts_as_many_pods_as_it_needs(case: Case, classes: tuple[str, str]) -> None:
    victims, pods = filled(case, node_1=3, node_2=3), names("g", 4)
    marks = annotation(case, "g", 4)
    for pod in pods:
        case.claim(pod)
        case.pod(pod, pod, priorityClassName=classes[0], **marks)
    case.until_runs(*pods)
    assert len(going(case, *victims)) == 4
    assert "preempting pods " in told(case, pods[0], "Preempting")


def test_when_the_preemptor_is_deleted_others_get_what_became_free(case: Case, classes: tuple[str, str]) -> None:
    (victim,) = filled(case, node_1=1)
    keep(case, victim)
    important(case, "important", classes[0])
    until_going(case, victim)
    case.claim("low")
    case.pod("low", "low")
    case.until_refused("low", "cannot allocate all claims")
    case.delete_pod("important")
    let_go(case, victim)
    assert case.until_bound("low") == "node-1"


def test_advice_is_given_and_nobody_goes(case: Case, ground: Ground, classes: tuple[str, str]) -> None:
    switch(ground, "advise")
    try:
        (victim,) = filled(case, node_1=1)
        important(case, "important", classes[0])
        assert f"would preempt pod {case.name}/{victim} on node node-1" in told(case, "important", "WouldPreempt")
        assert going(case, victim) == []
        assert "nominatedNodeName" not in case.stored_pod("important")["status"]
    finally:
        switch(ground, "on")
