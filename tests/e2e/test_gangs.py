"""Gangs on a real control plane: PodGroups, with kube-scheduler's cycle for groups."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.case import Case
from tests.e2e.components import release
from tests.e2e.controlplane import ControlPlane
from tests.e2e.gangs import (
    GROUP,
    ORDERS,
    QUIET_SECONDS,
    divisible,
    ground_with_groups,
    holding,
    members,
    names,
    plane_with_groups,
    pod_group,
    two_gangs,
    version,
    whole_or_half,
)
from tests.e2e.ground import Ground
from tests.e2e.space import Body

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("it rests on alpha features")]

GATES_136 = {"GenericWorkload": True, "GangScheduling": True, "DRAWorkloadResourceClaims": True}
GATES_137 = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    gates = GATES_136 if release() < (1, 37) else GATES_137
    with plane_with_groups(tmp_path_factory.mktemp("gangs"), gates) as plane:
        yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    with ground_with_groups(plane) as ground:
        yield ground


def condition(case: Case, group: str) -> Body:
    """What kube-scheduler says of the PodGroup."""
    found = case.ground.get(f"/apis/{GROUP}/{version()}/namespaces/{case.name}/podgroups/{group}")
    return dict(next(iter(found.get("status", {}).get("conditions", ())), {}))


def test_a_gang_that_does_not_fit_holds_no_device_and_says_what_is_missing(case: Case, ground: Ground) -> None:
    """T0."""
    case.publish("node-1", 1)
    pods = members(case, pod_group, "g", 2)
    for pod in pods:
        case.until_refused(pod, "Unschedulable")
    case.until_refused(pods[0], "1 of 2 pods fit together: ", "cannot allocate all claims")
    ground.eventually(lambda: condition(case, "g"), "the condition of the group")
    time.sleep(QUIET_SECONDS)
    assert case.bound(pods) == []
    assert holding(case, pods) == []
    told = condition(case, "g")
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")

    def described() -> bool:
        output = ground.plane.kubectl("describe", "pod", pods[0], f"--namespace={case.name}")
        events = output[output.index("Events:") :].splitlines()
        return any("dra-extender" in line and "1 of 2 pods fit together" in line for line in events)

    ground.eventually(described, "the event on the pod")


def test_members_take_a_half_each_where_one_after_the_other_would_take_the_whole(case: Case) -> None:
    """T1: kubernetes#138765."""
    divisible(case)
    marks = pod_group(case, "g", 2)
    for pod in ("one", "two"):
        whole_or_half(case, pod)
        case.pod(pod, pod, **marks)
    case.until_runs("one", "two")
    assert sorted(device for pod in ("one", "two") for device in case.devices(pod)) == ["half-0", "half-1"]


def test_a_single_pod_takes_the_whole(case: Case) -> None:
    """T1, for a pod alone."""
    divisible(case)
    whole_or_half(case, "alone")
    case.pod("alone", "alone")
    case.until_runs("alone")
    assert case.devices("alone") == ["whole"]


@pytest.mark.parametrize("seed", range(ORDERS))
def test_of_two_gangs_one_runs_and_the_other_holds_nothing_until_it_ends(case: Case, seed: int) -> None:
    """T2, in cycles of the group."""
    two_gangs(case, pod_group, seed)


# --- claims of several members ----------------------------------------------------------------------------------------


def test_the_pods_of_a_gang_share_a_claim_that_is_allocated_once(case: Case) -> None:
    case.publish("node-1", 1)
    marks, pods = pod_group(case, "g", 4), names("g", 4)
    case.claim("shared")
    for pod in pods:
        case.pod(pod, "shared", **marks)
    case.until_runs(*pods)
    assert len(case.stored_claim("shared")["status"]["reservedFor"]) == 4


def test_300_pods_share_the_claim_of_their_group(case: Case, ground: Ground) -> None:
    """T6."""
    node = case.node_added(pods=400)
    case.publish(node, 1)
    case.template("each")
    claims = [{"name": "t", "resourceClaimTemplateName": "each"}]
    marks, pods = pod_group(case, "g", 300, resourceClaims=claims), names("g", 300)
    for pod in pods:
        case.pod(pod, template="each", **marks)
    ground.eventually(lambda: len(case.bound(pods)) == 300, "a complete gang", 240)
    (claim,) = ground.claims(case.name)
    (entry,) = case.stored_claim(claim.metadata.name)["status"]["reservedFor"]
    assert (entry["resource"], entry["name"]) == ("podgroups", "g")


# --- members that differ ----------------------------------------------------------------------------------------------


def publish_roots(case: Case, node: str, *roots: tuple[str, str]) -> None:
    """Devices on PCIe roots: `gpu` or `nic`, and the number of the root."""
    listed = [
        {
            "name": f"{kind}-{root}",
            "attributes": {"kind": {"string": kind}, PCIE_ROOT: {"string": f"pci0000:{root}"}},
        }
        for kind, root in roots
    ]
    case.publish(node, listed)


def coordinator_and_workers(case: Case) -> list[str]:
    """One pod with a NIC, and seven with a GPU and a NIC on one root."""

    def wish(kind: str) -> Body:
        expression = f"device.attributes['{case.driver}'].kind == '{kind}'"
        return case.request(kind, selectors=[{"cel": {"expression": expression}}])

    marks = pod_group(case, "g", 8)
    case.claim("coordinator", wish("nic"))
    case.pod("coordinator", "coordinator", **marks)
    for worker in names("worker", 7):
        case.claim(worker, wish("gpu"), wish("nic"), constraints=[{"matchAttribute": PCIE_ROOT}])
        case.pod(worker, worker, **marks)
    return ["coordinator", *names("worker", 7)]


PAIR_0, PAIR_1 = (("gpu", "00"), ("nic", "00")), (("gpu", "01"), ("nic", "01"))


def test_members_with_different_claims_leave_each_other_what_they_need(case: Case) -> None:
    """T7. The coordinator is asked about first, and one NIC only is of no use to a worker."""
    for node in ("node-1", "node-2", "node-3"):
        publish_roots(case, node, *PAIR_0, *PAIR_1)
    publish_roots(case, "node-4", *PAIR_0, ("nic", "01"))
    pods = coordinator_and_workers(case)
    case.until_runs(*pods)
    assert (case.node("coordinator"), case.devices("coordinator")) == ("node-4", ["nic-01"])
    for worker in pods[1:]:
        gpu, nic = case.devices(worker)
        assert gpu.removeprefix("gpu") == nic.removeprefix("nic")


def test_the_reason_names_what_the_members_lack_together(case: Case) -> None:
    """T7, where they do not fit."""
    for node in ("node-1", "node-2", "node-3"):
        publish_roots(case, node, *PAIR_0, *PAIR_1)
    publish_roots(case, "node-4", *PAIR_0)
    pods = coordinator_and_workers(case)
    case.until_refused("coordinator", "7 of 8 pods fit together: ")
    time.sleep(QUIET_SECONDS)
    assert case.bound(pods) == []
    assert holding(case, pods) == []


def test_the_reason_names_the_member_that_fits_nowhere(case: Case) -> None:
    """T7, where one of them does not fit."""
    for node in ("node-1", "node-2", "node-3", "node-4"):
        publish_roots(case, node, ("gpu", "00"), ("gpu", "01"), ("nic", "02"), ("nic", "03"))
    pods = coordinator_and_workers(case)
    case.until_refused("coordinator", "pod worker-", "fits on no node: cannot allocate all claims")
    assert holding(case, pods) == []
