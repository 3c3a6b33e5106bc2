"""PodGroups of Kubernetes on a real node, with the alpha feature gates that they need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.components import offered, release
from tests.e2e.controlplane import DRA_FEATURES, DRA_RUNTIME_CONFIG, ControlPlane
from tests.e2e.gangs import GROUP, holding, members, names, pod_group, version
from tests.e2e.skipping import skip_without
from tests.support.node.case import NodeCase, slices_of
from tests.support.node.ground import NodeGround
from tests.support.node.machine import Untouched
from tests.support.node.node import Node

pytestmark = pytest.mark.node

CLAIMS = "DRAWorkloadResourceClaims"


def gates() -> dict[str, bool]:
    """What PodGroups need; before 1.37 gangs had a gate of their own."""
    return {"GenericWorkload": True, CLAIMS: True} | ({"GangScheduling": True} if release() < (1, 37) else {})


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A second control plane: what is alpha stays out of all other tests."""
    skip_without(gates(), offered(gates()), "v{}.{}".format(*release()))
    versions = (*DRA_RUNTIME_CONFIG, f"{GROUP}/{version()}=true")
    on = offered({**DRA_FEATURES, **gates()})
    directory = tmp_path_factory.mktemp("podgroups")
    with (
        Untouched(),
        ControlPlane(directory, feature_gates=on, runtime_config=versions, node_lifecycle=True) as plane,
    ):
        yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[NodeGround]:
    with NodeGround(plane) as ground:
        ground.extender.stop()
        ground.extender.environment["DRA_EXTENDER_FEATURE_GATES"] = f"{CLAIMS}=true"
        ground.extender.start()
        yield ground


@pytest.fixture(scope="module")
def node(ground: NodeGround) -> Iterator[Node]:
    with Node(ground.plane, 6) as node:
        yield node


def test_the_pods_of_a_gang_run_when_all_of_them_fit(case: NodeCase, node: Node) -> None:
    driver = case.serve(node, "a", "b")
    pods = members(case, pod_group, "train", 3)
    case.until_refused(pods[0], "2 of 3 pods fit together")
    assert case.bound(pods) == holding(case, pods) == []
    driver.stop()
    driver.start(slices_of("a", "b", "c"))
    seen = {pod: case.devices_in(node, pod) for pod in pods}
    assert seen == {pod: case.devices(pod) for pod in pods}
    assert sorted(seen.values()) == [["a"], ["b"], ["c"]]


def test_the_pods_of_a_gang_share_the_device_of_the_claim_made_for_it(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.template("template")
    entry = {"name": "t", "resourceClaimTemplateName": "template"}
    group = pod_group(case, "train", 2, resourceClaims=[entry])
    pods = names("worker", 2)
    for pod in pods:
        case.pod(pod, template="template", **group)
    seen = [case.devices_in(node, pod) for pod in pods]
    (claim,) = case.ground.claims(case.name)
    assert seen == [case.devices(claim.metadata.name)] * 2
    assert case.reserved(claim.metadata.name) == {"train"}
