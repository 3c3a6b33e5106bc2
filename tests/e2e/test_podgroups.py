"""Claims of PodGroups, v1alpha2 in Kubernetes 1.36, v1beta1 in 1.37: one for all pods of a group, reserved for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.components import metric
from tests.e2e.controlplane import ControlPlane
from tests.e2e.gangs import GROUP, ground_with_groups, plane_with_groups, version
from tests.e2e.ground import SCHEDULER, Ground

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("it rests on alpha features")]

GATES: Mapping[str, bool] = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
STOCK = "in-tree"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with plane_with_groups(tmp_path_factory.mktemp("podgroups"), GATES) as plane:
        yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    with ground_with_groups(plane) as ground:
        yield ground


@contextmanager
def in_tree(ground: Ground) -> Iterator[None]:
    """Meanwhile a scheduler allocates by itself and has the name of ours: since 1.37 a group has one scheduler."""
    ground.plane.stop_component(SCHEDULER)
    ground.plane.start_scheduler(STOCK, {"profiles": [{"schedulerName": SCHEDULER}]})
    yield
    ground.plane.stop_component(STOCK)
    ground.start_scheduler()


def group(case: Case, claim: dict[str, str]) -> dict[str, str]:
    """A PodGroup with one claim; gives its entry of reservedFor."""
    meta, spec = case.where("group"), {"schedulingPolicy": {"basic": {}}, "resourceClaims": [claim]}
    body = {"apiVersion": f"{GROUP}/{version()}", "kind": "PodGroup", "metadata": meta, "spec": spec}
    (made,) = case.apply(body)
    return {"apiGroup": GROUP, "resource": "podgroups", "name": "group", "uid": made["metadata"]["uid"]}


MEMBER: dict[str, Any] = {"schedulingGroup": {"podGroupName": "group"}}


def reservations(case: Case, claim: str) -> list[dict[str, str]]:
    return list(case.stored_claim(claim)["status"]["reservedFor"])


def test_the_groups_of_the_cluster_are_read(case: Case, ground: Ground) -> None:
    def known(what: str = "objects") -> float:
        return metric(ground.extender.metrics(), f"dra_extender_{what}", kind="PodGroup")

    before = known()
    where, gang = case.where("gang"), {"schedulingPolicy": {"gang": {"minCount": 2}}}
    case.apply({"apiVersion": f"{GROUP}/{version()}", "kind": "PodGroup", "metadata": where, "spec": gang})
    ground.eventually(lambda: known() == before + 1, "the group")
    assert known("undecodable_objects") == 0


def test_the_pods_of_a_group_share_the_claim_made_for_it(case: Case, ground: Ground) -> None:
    for node in ground.nodes:
        case.publish(node, 1)
    case.template("each")
    reserved = group(case, {"name": "t", "resourceClaimTemplateName": "each"})
    for name in ("one", "two", "three"):
        case.pod(name, template="each", **MEMBER)
    case.until_runs("one", "two", "three")
    (claim,) = ground.claims(case.name)
    assert reservations(case, claim.metadata.name) == [reserved]
    assert [result["pool"] for result in case.results(claim.metadata.name)] == [case.node("one")]


def test_the_claim_of_a_group_stays_until_the_group_goes(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.template("each")
    reserved = group(case, {"name": "t", "resourceClaimTemplateName": "each"})
    case.pod("one", template="each", **MEMBER)
    case.until_runs("one")
    (claim,) = ground.claims(case.name)
    case.delete_pod("one")
    case.pod("two", template="each", **MEMBER)
    case.until_runs("two")
    assert reservations(case, claim.metadata.name) == [reserved]
    case.pod_with_claim("stranger")
    case.until_refused("stranger", "cannot allocate all claims")
    case.delete_pod("two")
    ground.delete(f"/apis/{GROUP}/{version()}/namespaces/{case.name}/podgroups/group")
    assert case.until_bound("stranger") == "node-1"


@pytest.mark.parametrize("entry", ["resourceClaimName", "resourceClaimTemplateName"])
def test_what_the_in_tree_plugin_reserved_for_a_group_counts_for_its_pods(
    case: Case, ground: Ground, entry: str
) -> None:
    case.publish("node-1", 1)
    case.template("shared")
    named = entry == "resourceClaimName"
    if named:
        case.claim("shared")
    reserved = group(case, {"name": "c0" if named else "t", entry: "shared"})
    use: dict[str, Any] = {} if named else {"template": "shared"}
    claims = ["shared"] if named else []
    with in_tree(ground):
        case.pod("theirs", *claims, **use, **MEMBER)
        case.until_runs("theirs")
    case.pod("ours", *claims, **use, **MEMBER)
    case.until_runs("ours")
    (claim,) = ground.claims(case.name)
    assert reservations(case, claim.metadata.name) == [reserved]


def test_what_we_reserved_for_a_group_counts_for_the_in_tree_plugin(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.template("each")
    reserved = group(case, {"name": "t", "resourceClaimTemplateName": "each"})
    case.pod("ours", template="each", **MEMBER)
    case.until_runs("ours")
    with in_tree(ground):
        case.pod("theirs", template="each", **MEMBER)
        case.until_runs("theirs")
    (claim,) = ground.claims(case.name)
    assert reservations(case, claim.metadata.name) == [reserved]
