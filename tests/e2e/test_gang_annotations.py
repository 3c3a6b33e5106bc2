"""Gangs on a real control plane without any feature gate: kube-scheduler knows nothing of them and goes pod by pod."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
from aiohttp import web

from tests.e2e.case import Case
from tests.e2e.gangs import (
    QUIET_SECONDS,
    Marks,
    annotation,
    divisible,
    holding,
    kueue,
    leader_worker_set,
    members,
    names,
    whole_or_half,
)
from tests.e2e.ground import Ground
from tests.e2e.wire import Exchange

pytestmark = pytest.mark.e2e


def test_a_gang_that_does_not_fit_holds_no_device(case: Case) -> None:
    case.publish("node-1", 1)
    pods = members(case, annotation, "g", 2)
    for pod in pods:
        case.until_refused(pod, "gang", "fit together")
    time.sleep(QUIET_SECONDS)
    assert case.bound(pods) == []
    assert holding(case, pods) == []


def test_members_take_a_half_each_where_one_after_the_other_would_take_the_whole(case: Case) -> None:
    divisible(case)
    marks = annotation(case, "g", 2)
    for pod in ("one", "two"):
        whole_or_half(case, pod)
        case.pod(pod, pod, **marks)
    case.until_runs("one", "two")
    assert sorted(device for pod in ("one", "two") for device in case.devices(pod)) == ["half-0", "half-1"]


@pytest.mark.parametrize("seed", range(3))
def test_of_two_gangs_one_runs_and_the_other_holds_nothing_until_it_ends(case: Case, ground: Ground, seed: int) -> None:
    for node in ("node-1", "node-2", "node-3"):
        case.publish(node, 4)
    pods = {name: names(name, 8) for name in ("a", "b")}
    order = [(name, pod) for name in pods for pod in pods[name]]
    random.Random(seed).shuffle(order)
    for name, pod in order:
        case.pod_with_claim(pod, **annotation(case, name, 8))
    first = ground.eventually(
        lambda: next((name for name in pods if len(case.bound(pods[name])) == 8), ""), "a complete gang"
    )
    (second,) = pods.keys() - {first}
    case.until_refused(pods[second][0], "fit together")
    assert case.bound(pods[second]) == []
    assert holding(case, pods[second]) == []
    for pod in pods[first]:
        case.delete_pod(pod)
        case.delete_claim(pod)
    case.until_runs(*pods[second])


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
