"""Gangs on a real control plane without any feature gate: kube-scheduler knows nothing of them and goes pod by pod."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from aiohttp import web

from tests.e2e.case import Case
from tests.e2e.gangs import (
    ORDERS,
    QUIET_SECONDS,
    Marks,
    annotation,
    divisible,
    holding,
    kueue,
    leader_worker_set,
    members,
    names,
    two_gangs,
    whole_or_half,
)
from tests.e2e.ground import Ground
from tests.e2e.wire import Exchange

pytestmark = pytest.mark.e2e


def test_a_gang_that_does_not_fit_holds_no_device(case: Case) -> None:
    """T0, pod by pod."""
    case.publish("node-1", 1)
    pods = members(case, annotation, "g", 2)
    for pod in pods:
        case.until_refused(pod, "gang", "fit together")
    time.sleep(QUIET_SECONDS)
    assert case.bound(pods) == []
    assert holding(case, pods) == []


def test_members_take_a_half_each_where_one_after_the_other_would_take_the_whole(case: Case) -> None:
    """T1, pod by pod."""
    divisible(case)
    marks = annotation(case, "g", 2)
    for pod in ("one", "two"):
        whole_or_half(case, pod)
        case.pod(pod, pod, **marks)
    case.until_runs("one", "two")
    assert sorted(device for pod in ("one", "two") for device in case.devices(pod)) == ["half-0", "half-1"]


@pytest.mark.parametrize("seed", range(ORDERS))
def test_of_two_gangs_one_runs_and_the_other_holds_nothing_until_it_ends(case: Case, seed: int) -> None:
    """T2, pod by pod."""
    two_gangs(case, annotation, seed)


@pytest.mark.slow
def test_a_gang_that_needs_one_rack_takes_one_whose_devices_suffice(case: Case, ground: Ground) -> None:
    """T3. The first rack has room for the pods, and too few devices; nothing stays held in a rack that lost."""
    racks = {"r1": 2, "r2": 4, "r3": 3}
    for rack, devices in racks.items():
        for number in range(2):
            node = f"{case.name}-{rack}-{number}"
            labels = {"kubernetes.io/hostname": node, "example.com/rack": rack}
            case.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}})
            amounts = {"cpu": "32", "memory": "64Gi", "pods": "20"}
            ground.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
            case.publish(node, devices)
    given = annotation(case, "g", 8)
    given["annotations"]["dra-extender.dev/topology-required"] = "example.com/rack"
    pods = names("g", 8)
    for pod in pods:
        case.pod_with_claim(pod, **given)
    case.until_runs(*pods)
    assert {case.node(pod).split("-")[-2] for pod in pods} == {"r2"}
    time.sleep(QUIET_SECONDS)
    singles = names("single", 2 * (racks["r1"] + racks["r3"]))
    for single in singles:
        case.pod_with_claim(single)
    case.until_runs(*singles)


def test_a_gang_waits_for_its_last_pod(case: Case) -> None:
    case.publish("node-1", 3)
    marks, pods = annotation(case, "g", 3), names("g", 3)
    for pod in pods[:2]:
        case.pod_with_claim(pod, **marks)
    for pod in pods[:2]:
        case.until_refused(pod, "2 of 3 pods exist")
    assert holding(case, pods[:2]) == []
    case.pod_with_claim(pods[2], **marks)
    case.until_runs(*pods)


def test_a_pod_that_comes_between_two_members_gets_nothing_that_the_plan_holds(case: Case, ground: Ground) -> None:
    """kube-scheduler cannot place the second member for a while after the first one is bound."""
    case.publish("node-1", 3)
    open_, pods = False, names("g", 3)

    async def refuse_all_but_one(exchange: Exchange) -> web.Response | None:
        others = [case.key(pod) for pod in pods if not case.node(pod)] if case.bound(pods) else []
        if open_ or exchange.verb != "filter" or exchange.pod not in others:
            return None
        return web.json_response({"Error": "disturbed by a test"})

    with ground.calls.rule(before=refuse_all_but_one):
        members(case, annotation, "g", 3)
        ground.eventually(lambda: case.bound(pods), "the first binding")
        case.pod_with_claim("single")
        case.until_refused("single", "cannot allocate all claims")
        assert len(case.bound(pods)) < 3
        open_ = True
    case.until_runs(*pods)
    assert holding(case, ["single"]) == []


@pytest.mark.parametrize("marks", [kueue, leader_worker_set])
def test_the_groups_of_other_projects_are_gangs(case: Case, ground: Ground, marks: Marks) -> None:
    """The second gang does not fit as a whole, and takes nothing of what the first left over."""
    case.publish("node-1", 4)
    case.publish("node-2", 1)
    first = members(case, marks, "first", 3)
    case.until_runs(*first)
    second = members(case, marks, "second", 3)
    for pod in second:
        case.until_refused(pod, "fit together")
    assert holding(case, second) == []
    case.publish("node-3", 1)
    case.until_runs(*second)
    assert Counter(map(case.node, first)) == {"node-1": 3}
