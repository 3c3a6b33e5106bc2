"""The chart with its defaults on real nodes: its pods run, bind pods, are tested, upgraded and removed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.support.chart.helm import NAME
from tests.support.node.case import NodeCase
from tests.support.node.certificates import VALUES, Certificates
from tests.support.node.ground import BareGround
from tests.support.node.node import Node
from tests.support.node.site import WHERE, NodeSite

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]  # the image is built first


@pytest.fixture(scope="module", autouse=True)
def release(site: NodeSite) -> Iterator[None]:
    """One release, for all tests in their order."""
    site.install()
    yield
    site.uninstall()


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


def test_of_two_replicas_one_is_evicted_and_the_other_when_a_new_one_is_ready(
    site: NodeSite, case: NodeCase, node: Node
) -> None:
    case.serve(node, "a", "b")
    leader, other = site.replicas()
    assert site.evict(leader) == ""
    assert "disruption budget" in site.evict(other)
    case.pod_with_claim("between")
    seen = case.devices_in(node, "between")
    site.ground.eventually(lambda: not site.evict(other), "eviction of the other replica")
    case.pod_with_claim("after")
    seen += case.devices_in(node, "after")
    assert sorted(seen) == ["a", "b"]
    assert {leader, other}.isdisjoint(site.replicas())


def test_after_the_kernel_ends_the_leader_at_its_memory_limit_pods_are_bound_and_it_runs_again(
    site: NodeSite, case: NodeCase, node: Node
) -> None:
    case.serve(node, "only")
    leader, _ = site.replicas()
    container = site.container(leader)["containerID"].removeprefix("containerd://")
    site.node_of(leader).runtime.exhaust_memory(container)
    case.pod_with_claim("pod")
    assert case.devices_in(node, "pod") == ["only"]
    site.ground.eventually(lambda: leader in site.ready(), "the replica that was ended")
    assert site.container(leader)["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_while_certificates_are_replaced_no_pod_is_refused_and_the_new_ones_serve_the_next_connections(
    site: NodeSite, case: NodeCase, node: Node
) -> None:
    certificates = Certificates(site.plane)
    certificates.issue()
    site.upgrade(VALUES)
    case.serve(node, *(f"gpu-{number}" for number in range(40)))
    leader, other = site.replicas()
    certificates.issue()
    names = (f"during-{number}" for number in count())

    def replaced() -> bool:
        name = next(names)
        case.pod_with_claim(name)
        case.until_runs(name)
        return all(certificates.are_served_at(site.address(replica)) for replica in (leader, other))

    site.ground.eventually(replaced, "the new certificates")
    assert site.ready() == [leader, other]
    assert [site.container(replica)["restartCount"] for replica in (leader, other)] == [0, 0]
    assert case.events("FailedScheduling") == []
    assert site.evict(leader) == ""  # kube-scheduler has to connect to the other one
    case.pod_with_claim("after")
    assert case.devices_in(node, "after") == case.devices("after") != []


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
    site.uninstall()
    assert case.phase("pod") == "Running"
    assert case.devices("pod") == ["only"]
