"""Gangs on a real control plane: PodGroups, with kube-scheduler's cycle for groups."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.case import Case
from tests.e2e.components import offered, release
from tests.e2e.controlplane import DRA_FEATURES, DRA_RUNTIME_CONFIG, ControlPlane
from tests.e2e.ground import Ground
from tests.e2e.skipping import skip_without
from tests.e2e.space import Body

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("it rests on alpha features")]

GROUP = "scheduling.k8s.io"
GATES_136 = {"GenericWorkload": True, "GangScheduling": True, "DRAWorkloadResourceClaims": True}
GATES_137 = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
QUIET_SECONDS = 10.0


def version() -> str:
    return "v1alpha2" if release() < (1, 37) else "v1beta1"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    gates = GATES_136 if release() < (1, 37) else GATES_137
    skip_without(gates, offered(gates), "v{}.{}".format(*release()))
    directory = tmp_path_factory.mktemp("gangs")
    versions = (*DRA_RUNTIME_CONFIG, f"{GROUP}/{version()}=true")
    with ControlPlane(directory, feature_gates=offered({**DRA_FEATURES, **gates}), runtime_config=versions) as plane:
        yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    with Ground(plane) as ground:
        ground.extender.stop()
        ground.extender.environment["DRA_EXTENDER_FEATURE_GATES"] = "DRAWorkloadResourceClaims=true"
        ground.extender.start()
        yield ground


def gang(case: Case, name: str, size: int) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
    body = {"apiVersion": f"{GROUP}/{version()}", "kind": "PodGroup", "metadata": case.where(name), "spec": spec}
    case.apply(body)


def member(case: Case, name: str, *claims: str, group: str) -> None:
    case.pod(name, *claims, schedulingGroup={"podGroupName": group})


def members(case: Case, name: str, size: int) -> list[str]:
    """A gang of pods with a claim for one device each."""
    gang(case, name, size)
    pods = [f"{name}-{number}" for number in range(size)]
    for pod in pods:
        case.claim(pod)
        member(case, pod, pod, group=name)
    return pods


def bound(case: Case, pods: Sequence[str]) -> list[str]:
    return [pod for pod in pods if (found := case.ground.pod(f"{case.name}/{pod}")) and found.spec.node_name]


def holding(case: Case, claims: Sequence[str]) -> list[str]:
    return [claim for claim in claims if case.stored_claim(claim).get("status", {}).get("allocation")]


def test_a_gang_that_does_not_fit_holds_no_device(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    pods = members(case, "g", 2)
    case.until_refused(pods[0], "fit together")
    time.sleep(QUIET_SECONDS)
    assert bound(case, pods) == []
    assert holding(case, pods) == []


def part(name: str, kind: str, units: str) -> Body:
    consumes = [{"counterSet": "gpu", "counters": {"units": {"value": units}}}]
    return {"name": name, "attributes": {"kind": {"string": kind}}, "consumesCounters": consumes}


def divisible(case: Case) -> None:
    """One GPU on node-1, as a whole or as two halves."""
    pool = {"name": "gpus", "generation": 1, "resourceSliceCount": 2}
    where = {"driver": case.driver, "nodeName": "node-1", "pool": pool}
    sets = [{"name": "gpu", "counters": {"units": {"value": "2"}}}]
    parts = [part("whole", "whole", "2"), part("half-0", "half", "1"), part("half-1", "half", "1")]
    for name, content in {"sets": {"sharedCounters": sets}, "parts": {"devices": parts}}.items():
        meta, spec = {"name": f"{case.name}-{name}"}, {**where, **content}
        case.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec})


def whole_or_half(case: Case, name: str) -> None:
    def wish(kind: str) -> Body:
        expression = f"device.attributes['{case.driver}'].kind == '{kind}'"
        return {"name": kind, "deviceClassName": case.name, "selectors": [{"cel": {"expression": expression}}]}

    case.claim(name, {"name": "r", "firstAvailable": [wish("whole"), wish("half")]})


def test_members_take_a_half_each_where_one_after_the_other_would_take_the_whole(case: Case) -> None:
    """kubernetes#138765."""
    divisible(case)
    gang(case, "g", 2)
    for pod in ("one", "two"):
        whole_or_half(case, pod)
        member(case, pod, pod, group="g")
    case.until_runs("one", "two")
    assert sorted(result["device"] for pod in ("one", "two") for result in case.results(pod)) == ["half-0", "half-1"]


def test_a_single_pod_takes_the_whole(case: Case) -> None:
    divisible(case)
    whole_or_half(case, "alone")
    case.pod("alone", "alone")
    case.until_runs("alone")
    assert [result["device"] for result in case.results("alone")] == ["whole"]


@pytest.mark.parametrize("seed", range(5))
def test_of_two_gangs_one_runs_and_the_other_holds_nothing_until_it_ends(case: Case, ground: Ground, seed: int) -> None:
    for node in ("node-1", "node-2", "node-3"):
        case.publish(node, 4)
    pods = {name: [f"{name}-{number}" for number in range(8)] for name in ("a", "b")}
    order = [(name, pod) for name, names in pods.items() for pod in names]
    random.Random(seed).shuffle(order)
    for name in pods:
        gang(case, name, 8)
    for name, pod in order:
        case.claim(pod)
        member(case, pod, pod, group=name)
    first = ground.eventually(
        lambda: next((name for name, names in pods.items() if len(bound(case, names)) == 8), ""), "a complete gang"
    )
    second = "b" if first == "a" else "a"
    time.sleep(2.0)
    assert bound(case, pods[second]) == []
    assert holding(case, pods[second]) == []
    for pod in pods[first]:
        case.delete_pod(pod)
        case.delete_claim(pod)
    case.until_runs(*pods[second])


def test_the_pods_of_a_gang_share_a_claim_that_is_allocated_once(case: Case) -> None:
    case.publish("node-1", 1)
    gang(case, "g", 4)
    case.claim("shared")
    pods = [f"p-{number}" for number in range(4)]
    for pod in pods:
        member(case, pod, "shared", group="g")
    case.until_runs(*pods)
    assert len(case.stored_claim("shared")["status"]["reservedFor"]) == 4
