"""The chart with its defaults on real nodes: its pods run, bind pods, are tested, upgraded and removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.node import test_eviction, test_features, test_gangs
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


@pytest.fixture(scope="module")
def other(site: NodeSite) -> Node:
    return site.nodes[1]


@pytest.fixture
def preemption(site: NodeSite) -> None:
    """On, until the next upgrade."""
    site.upgrade({"settings": {"preemption": "on"}})


def test_its_replicas_are_ready_on_both_nodes(site: NodeSite) -> None:
    for name in ("dra-extender", "dra-scheduler"):
        assert site.deployment(name, ".status.readyReplicas") == "2"
    assert sorted(site.nodes_of("app.kubernetes.io/name=dra-extender")) == [node.name for node in site.nodes]


def test_it_gives_a_pod_the_device_that_its_container_sees(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.pod_with_claim("pod")
    assert case.devices_in(node, "pod") == case.devices("pod")
    assert len(case.devices("pod")) == 1


@pytest.mark.needs("DRAConsumableCapacity", "DRAPartitionableDevices", "DRAExtendedResource", "DRAAdminAccess")
def test_it_gives_requests_of_every_kind_their_devices(case: NodeCase, node: Node) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    case.ground.patch(f"/api/v1/namespaces/{case.name}", label)
    resource = f"{case.name}.example.com/gpu"
    case.device_class(f"{case.name}-extended", extendedResourceName=resource, selectors=of(case, "extended"))
    half = {"consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": "40Gi"}}}]}
    shared = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "100G"}}}
    plain = [device("plain", number) for number in range(4)]
    others = [device("extended", 0), device("card", 0, **shared), device("half", 0, **half), device("half", 1, **half)]
    case.serve(node, *plain, *others, counters=[{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}])
    case.claim("one", case.request(selectors=of(case, "plain")))
    case.claim("shared", case.request(selectors=of(case, "plain")))
    case.claim("best", {"name": "r", "firstAvailable": [wish(case, "missing"), wish(case, "plain")]})
    case.claim("part", case.request(selectors=of(case, "half")))
    case.claim("all", case.request(allocationMode="All", adminAccess=True, selectors=of(case, "half")))
    case.template("template", case.request(selectors=of(case, "plain")))
    for name in ("some", "more"):
        case.claim(name, case.request(selectors=of(case, "card"), capacity={"requests": {"bandwidth": "40G"}}))
    pods = {"one": "one", "first": "shared", "second": "shared", "best": "best", "part": "part", "all": "all"}
    for pod, claim in {**pods, "some": "some", "more": "more"}.items():
        case.pod(pod, claim)
    case.pod("each", template="template")
    case.pod("extended", requests={resource: "1"})
    seen = {pod: case.devices_in(node, pod) for pod in (*pods, "some", "more", "each")}
    assert {pod: seen[pod] for pod in pods} == {pod: case.devices(claim) for pod, claim in pods.items()}
    assert seen["some"] == seen["more"] == ["card-0"]
    assert sorted(seen["all"]) == ["half-0", "half-1"]
    assert seen["part"][0] in seen["all"]
    assert seen["first"] == seen["second"]
    assert sorted(seen["one"] + seen["first"] + seen["best"] + seen["each"]) == [each["name"] for each in plain]
    case.until_runs("extended")
    (mapping,) = case.stored_pod("extended")["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert case.devices_in(node, "extended", mapping["requestName"]) == ["extended-0"]


def device(kind: str, number: int, **more: object) -> dict[str, object]:
    return {"name": f"{kind}-{number}", "attributes": {"kind": {"string": kind}}, **more}


def of(case: NodeCase, kind: str) -> list[dict[str, object]]:
    """The selectors of devices of a kind."""
    return [{"cel": {"expression": f"device.attributes['{case.driver}'].kind == '{kind}'"}}]


def wish(case: NodeCase, kind: str) -> dict[str, object]:
    """An alternative of a prioritized list."""
    return {"name": kind, "deviceClassName": case.name, "selectors": of(case, kind)}


# The same as without the chart; here the pods of the release serve them.
test_a_pod_runs_when_the_driver_reports_that_the_binding_conditions_are_met = (
    test_features.test_a_pod_runs_when_the_driver_reports_that_the_binding_conditions_are_met
)
test_the_pods_of_a_gang_run_on_two_nodes_once_all_of_them_exist = (
    test_gangs.test_the_pods_of_a_gang_run_on_two_nodes_once_all_of_them_exist
)
test_a_taint_rule_evicts_a_pod_and_its_replacement_runs_on_another_node = (
    test_eviction.test_a_taint_rule_evicts_a_pod_and_its_replacement_runs_on_another_node
)
test_a_preemptor_runs_with_the_device_of_its_victim = test_eviction.test_a_preemptor_runs_with_the_device_of_its_victim


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


def test_with_a_full_disk_for_their_logs_replicas_start_and_bind(site: NodeSite, case: NodeCase, node: Node) -> None:
    """The service writes nothing else: its root is read-only, and it has no volume but those of Secrets and tokens."""
    case.serve(node, "a", "b")
    first, second = site.nodes
    with first.without_space_for_logs(), second.without_space_for_logs():
        for each in site.nodes:
            each.runtime.crash("dra-extender")
        case.pod_with_claim("during")
        case.until_runs("during")
        assert max(shutil.disk_usage(each.logs).free for each in site.nodes) < 1 << 20
    case.pod_with_claim("after")
    assert sorted(case.devices("during") + case.devices_in(node, "after")) == ["a", "b"]


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
