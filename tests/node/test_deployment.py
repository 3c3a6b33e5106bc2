"""The chart with its defaults on real nodes: its pods run, bind pods, are tested, upgraded and removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.support.chart.helm import NAME, tool
from tests.support.node.case import NodeCase
from tests.support.node.ground import BareGround
from tests.support.node.node import Node
from tests.support.node.site import WHERE, NodeSite
from tests.support.packaging.image import missing

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]  # the image is built first


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeSite]:
    """One cluster with one release, for all tests in their order."""
    if problem := missing():
        pytest.skip(problem)
    if tool("helm") is None:
        pytest.skip("helm is missing: run `make charttools` (needs Go), or install it")
    with NodeSite(tmp_path_factory.mktemp("site")) as site:
        site.install()
        yield site


@pytest.fixture(scope="module")
def plane(site: NodeSite) -> ControlPlane:
    return site.plane


@pytest.fixture(scope="module")
def ground(site: NodeSite) -> BareGround:
    return site.ground


@pytest.fixture(scope="module")
def node(site: NodeSite) -> Node:
    return site.nodes[0]


def test_its_replicas_are_ready_on_both_nodes(site: NodeSite) -> None:
    for name in ("dra-extender", "dra-scheduler"):
        assert site.deployment(name, ".status.readyReplicas") == "2"
    assert sorted(site.nodes_of("app.kubernetes.io/name=dra-extender")) == [node.name for node in site.nodes]


def test_it_gives_a_pod_the_device_that_its_container_sees(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.pod_with_claim("pod")
    assert case.devices_in(node, "pod") == case.devices("pod")
    assert len(case.devices("pod")) == 1


def test_helm_tests_it(site: NodeSite) -> None:
    assert "Phase:          Succeeded" in site.helm.run("test", NAME, WHERE, "--timeout=90s")


def test_after_a_crash_of_all_replicas_it_binds_the_next_pod(site: NodeSite, case: NodeCase, node: Node) -> None:
    case.serve(node, "only")
    for each in site.nodes:
        each.runtime.crash("dra-extender")
    case.pod_with_claim("pod")
    assert case.devices_in(node, "pod") == ["only"]


def test_after_an_upgrade_pods_have_their_devices_and_the_next_gets_another(
    site: NodeSite, case: NodeCase, node: Node
) -> None:
    case.serve(node, "a", "b")
    case.pod_with_claim("before")
    assert len(case.devices_in(node, "before")) == 1
    site.upgrade({"settings": {"placement": "pack"}})
    case.pod_with_claim("after")
    seen = case.devices_in(node, "before") + case.devices_in(node, "after")
    assert sorted(seen) == ["a", "b"]


def test_its_removal_leaves_pods_and_their_devices(site: NodeSite, case: NodeCase, node: Node) -> None:
    case.serve(node, "only")
    case.pod_with_claim("pod")
    assert case.devices_in(node, "pod") == ["only"]
    site.helm.run("uninstall", NAME, WHERE)
    site.ground.eventually(lambda: not site.nodes_of("app.kubernetes.io/name=dra-extender"), "the end of its pods")
    assert case.phase("pod") == "Running"
    assert case.devices("pod") == ["only"]
