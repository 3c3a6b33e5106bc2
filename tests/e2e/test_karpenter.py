"""Karpenter makes nodes for pods that the extender refuses, and removes nodes that no pod uses."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.case import Case
from tests.e2e.controlplane import ControlPlane
from tests.e2e.gangs import QUIET_SECONDS, names, plane_with_groups, pod_group
from tests.e2e.ground import Ground
from tests.e2e.karpenter import CRDS, DEVICES, Karpenter, skip_without_karpenter

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.own_plane("it makes and removes nodes")]

HANDLES_CLAIMS = "--ignore-dra-requests=false"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    skip_without_karpenter()
    directory = tmp_path_factory.mktemp("karpenter")
    with plane_with_groups(directory, {"GenericWorkload": True}, node_lifecycle=True) as plane:
        plane.kubectl("apply", "--server-side", f"--filename={CRDS}")
        plane.kubectl("wait", "--for=condition=Established", "--timeout=90s", "crd", "--all")
        yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    """Without nodes: all that there are Karpenter makes."""
    with Ground(plane, nodes=0) as ground:
        yield ground


def refused(case: Case, pods: list[str]) -> None:
    """All of them carry what Karpenter acts on: the reason Unschedulable, and no nominated node."""
    for pod in pods:
        assert case.told(pod).startswith("Unschedulable: "), pod
        assert not case.stored_pod(pod)["status"].get("nominatedNodeName"), pod


def why(case: Case, pod: str) -> str:
    """The reason that `why` gives."""
    return str(case.ground.extender.ask(f"/insight/diagnosis?pod={case.key(pod)}")["summary"])


def test_nodes_come_for_waiting_pods_and_go_when_they_are_empty(case: Case) -> None:
    with Karpenter(case, HANDLES_CLAIMS) as karpenter:
        pods = ["one", "two"]
        for pod in pods:
            case.pod_with_claim(pod)
        (node,) = karpenter.until_nodes(1)
        # The node is there, and its driver has not found the devices yet.
        time.sleep(QUIET_SECONDS)
        karpenter.until_it_decides_again()
        refused(case, pods)
        assert not karpenter.is_initialized(node)
        assert len(karpenter.node_claims()) == 1
        starts = f"Karpenter has not initialized node {node} yet"
        assert starts in why(case, "one")
        case.ground.eventually(lambda: any(starts in told for told in case.told_by("one")), "the event of the service")
        karpenter.publish(node)
        case.until_runs(*pods)
        assert {case.node(pod) for pod in pods} == {node}
        case.ground.eventually(lambda: karpenter.is_initialized(node), "the end of the node's start")

        case.pod_with_claim("three")
        second = next(name for name in karpenter.until_nodes(2) if name != node)
        karpenter.publish(second)
        case.until_runs("three")
        assert case.node("three") == second
        case.delete_pod("three")
        case.ground.eventually(lambda: karpenter.nodes() == [node], "the end of the empty node")
        assert [case.phase(pod) for pod in pods] == ["Running", "Running"]


def test_a_gang_that_needs_two_nodes_gets_two(case: Case) -> None:
    with Karpenter(case, HANDLES_CLAIMS) as karpenter:
        pods, given = names("gang", 2), pod_group(case, "gang", 2)
        for pod in pods:
            case.claim(pod, case.request(count=len(DEVICES)))
            case.pod(pod, pod, **given)
        first, second = karpenter.until_nodes(2)
        karpenter.publish(first)
        # One of them would fit now, and waits for the other. The first node is empty, and stays for it.
        time.sleep(2 * QUIET_SECONDS)
        karpenter.until_it_decides_again()
        refused(case, pods)
        assert karpenter.is_initialized(first)
        assert f"Karpenter has not initialized node {second} yet" in why(case, "gang-0")
        assert len(karpenter.node_claims()) == 2
        karpenter.publish(second)
        case.until_runs(*pods)
        assert sorted(map(case.node, pods)) == sorted([first, second])
        assert len(karpenter.node_claims()) == 2


@pytest.mark.parametrize(
    ("flag", "promises", "says"),
    [
        ("--ignore-dra-requests=true", True, "not yet supported by Karpenter"),
        (HANDLES_CLAIMS, False, "no instance type can satisfy the allocation"),
    ],
    ids=["it ignores claims, as by default", "its provider does not say what devices a new node has"],
)
def test_karpenter_makes_no_node_for_a_claim(case: Case, flag: str, promises: bool, says: str) -> None:
    with Karpenter(case, flag, promises=promises) as karpenter:
        case.pod_with_claim("one")
        told = case.ground.eventually(lambda: case.told_by("one", "karpenter"), "its refusal")
        assert says in told[0]
        refused(case, ["one"])
        assert karpenter.node_claims() == []
