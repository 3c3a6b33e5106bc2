"""Features of device allocation on a real node: kubelet and driver prepare what the extender allocated."""

from __future__ import annotations

import pytest

from dra_extender.api.quantity import Quantity
from tests.support.node.case import NodeCase, slices_of
from tests.support.node.node import Node

pytestmark = pytest.mark.node
needs = pytest.mark.needs


@needs("DRAConsumableCapacity")
def test_a_device_is_shared_as_long_as_its_capacity_lasts(case: NodeCase, node: Node) -> None:
    case.serve(node, {"name": "card", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "100G"}}})
    for name in ("first", "second", "third"):
        case.claim(name, case.request(capacity={"requests": {"bandwidth": "40G"}}))
        case.pod(name, name)
    case.ground.eventually(lambda: len(case.bound(("first", "second", "third"))) == 2, "two pods")
    running = case.bound(("first", "second", "third"))
    (waiting,) = {"first", "second", "third"} - set(running)
    case.until_refused(waiting)
    for name in running:
        assert case.devices_in(node, name) == ["card"]
        (result,) = case.results(name)
        assert Quantity.parse(result["consumedCapacity"]["bandwidth"]) == Quantity.parse("40G")
    assert len({case.results(name)[0]["shareID"] for name in running}) == 2
    case.ground.delete(case.pod_path(running[0]))
    assert case.devices_in(node, waiting) == ["card"]


@needs("DRAPartitionableDevices")
def test_partitions_share_the_counters_of_the_whole(case: NodeCase, node: Node) -> None:
    counters = [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]
    parts = [part("half-0", "40Gi"), part("half-1", "40Gi"), part("whole", "80Gi")]
    case.serve(node, *parts, counters=counters)
    for name in ("half-0", "half-1", "whole"):
        expression = f'device.capacity["{case.driver}"].memory.compareTo(quantity("{memory_of(name)}")) == 0'
        case.claim(name, case.request(selectors=[{"cel": {"expression": expression}}]))
    case.pod("half-0", "half-0")
    case.pod("half-1", "half-1")
    seen = [case.devices_in(node, name) for name in ("half-0", "half-1")]
    assert sorted(seen) == [["half-0"], ["half-1"]]
    case.pod("whole", "whole")
    case.until_refused("whole")
    for name in ("half-0", "half-1"):
        case.ground.delete(case.pod_path(name))
    assert case.devices_in(node, "whole") == ["whole"]


def memory_of(part: str) -> str:
    return "80Gi" if part == "whole" else "40Gi"


def part(name: str, memory: str) -> dict[str, object]:
    """A partition with this much of the memory of the GPU."""
    amounts = {"memory": {"value": memory}}
    return {"name": name, "capacity": amounts, "consumesCounters": [{"counterSet": "gpu", "counters": amounts}]}


@needs("DRAExtendedResource")
def test_a_container_with_an_extended_resource_sees_the_devices_of_the_claim_made_for_it(
    case: NodeCase, node: Node
) -> None:
    resource = f"{case.name}.example.com/gpu"
    case.device_class(f"{case.name}-extended", extendedResourceName=resource)
    case.serve(node, "a", "b", "c")
    case.pod("pod", requests={resource: "2"})
    case.until_runs("pod")
    made = case.stored_pod("pod")["status"]["extendedResourceClaimStatus"]
    (request,) = {mapping["requestName"] for mapping in made["requestMappings"]}
    assert case.devices_in(node, "pod", request) == case.devices(made["resourceClaimName"])
    assert len(case.devices(made["resourceClaimName"])) == 2


@needs("DRAAdminAccess")
def test_admin_access_shows_a_container_devices_that_others_use(case: NodeCase, node: Node) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    case.ground.patch(f"/api/v1/namespaces/{case.name}", label)
    case.serve(node, "a", "b")
    case.claim("both", case.request(count=2))
    case.pod("user", "both")
    assert sorted(case.devices_in(node, "user")) == ["a", "b"]
    case.claim("all", case.request(allocationMode="All", adminAccess=True))
    case.pod("monitor", "all")
    assert sorted(case.devices_in(node, "monitor")) == ["a", "b"]
    assert [result["adminAccess"] for result in case.results("all")] == [True, True]


@needs("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
def test_a_pod_runs_when_the_driver_reports_that_the_binding_conditions_are_met(case: NodeCase, node: Node) -> None:
    remote = {"name": "remote", "bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
    driver = case.serve(node, remote)
    driver.stop()
    case.pod_with_claim("pod")
    case.ground.eventually(lambda: case.results("pod"), "allocation")
    assert case.node("pod") == ""
    driver.start(slices_of(remote))
    assert case.devices_in(node, "pod") == ["remote"]
    (device,) = case.stored_claim("pod")["status"]["devices"]
    assert [condition["type"] for condition in device["conditions"]] == ["attached"]
