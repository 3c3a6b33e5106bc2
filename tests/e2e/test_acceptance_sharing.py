"""Acceptance tests 33 to 36: shared claims, allocations in the way, and extended resources that are devices."""

from __future__ import annotations

import pytest

from tests.e2e.case import Case
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e

CONSUMERS = 256
"""That a claim may have at most."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_33_a_claim_has_256_consumers_and_the_257th_waits_with_the_reason(case: Case, ground: Ground) -> None:
    node = case.node_added(pods=CONSUMERS + 1)
    case.publish(node, 1)
    case.claim("shared")
    names = [f"pod-{index}" for index in range(CONSUMERS)]
    for name in names:
        case.pod(name, "shared")
    ground.eventually(lambda: len(case.bound(names)) == CONSUMERS, "all bindings", 300)
    assert case.reserved("shared") == set(names)
    case.pod("one-too-many", "shared")
    case.until_refused("one-too-many", "Unschedulable", "256")
    case.delete_pod(names[-1])
    assert case.until_bound("one-too-many") == node
    assert len(case.reserved("shared")) == CONSUMERS


def test_34_two_pods_that_share_a_fresh_claim_meet_on_one_node(case: Case, ground: Ground) -> None:
    for node in ground.nodes:
        case.publish(node, 1)
    case.claim("shared")
    names = ["a", "b", "c", "d"]
    for name in names:
        case.pod(name, "shared")
    case.until_runs(*names)
    assert len({case.node(name) for name in names}) == 1
    assert len(case.devices("shared")) == 1
    assert case.reserved("shared") == set(names)


def test_35_a_claim_stuck_on_a_node_that_cannot_be_used_is_allocated_anew(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.publish("node-2", 1)
    case.claim("stuck")
    ground.run(case.allocate_elsewhere("stuck", "node-1"))
    ground.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": True}})
    try:
        case.pod("one", "stuck")
        assert case.until_bound("one") == "node-2"
    finally:
        ground.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": None}})
    assert [result["pool"] for result in case.results("stuck")] == ["node-2"]
    case.until_runs("one")


def test_35_an_allocation_that_others_use_stays_where_it_is(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.publish("node-2", 1)
    case.claim("used")
    case.pod("user", "used", node="node-1")
    case.until_runs("user")
    ground.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": True}})
    try:
        case.pod("other", "used")
        case.until_refused("other", "resourceclaim not available on the node")
        assert case.devices("used") == ["device-0"]
        assert case.reserved("used") == {"user"}
    finally:
        ground.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": None}})
    assert case.until_bound("other") == "node-1"


@pytest.mark.needs("DRAExtendedResource")
def test_36_an_extended_resource_becomes_a_claim_that_lives_as_long_as_its_pod(case: Case, ground: Ground) -> None:
    resource = f"{case.name}.example.org/gpu"
    case.device_class(f"{case.name}-extended", extendedResourceName=resource)
    case.publish("node-3", 2)
    case.pod("two", requests={resource: "2"})
    case.until_runs("two")
    told = case.stored_pod("two")["status"]["extendedResourceClaimStatus"]
    assert [(mapping["containerName"], mapping["resourceName"]) for mapping in told["requestMappings"]] == [
        ("main", resource)
    ]
    made = case.stored_claim(told["resourceClaimName"])
    assert made["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert made["metadata"]["ownerReferences"][0]["name"] == "two"
    assert sorted(case.devices(told["resourceClaimName"])) == ["device-0", "device-1"]
    assert case.reserved(told["resourceClaimName"]) == {"two"}
    case.pod("more", requests={resource: "1"})
    assert case.until_refused("more").startswith("Unschedulable:")
    case.delete_pod("two")
    assert case.until_bound("more") == "node-3"
    ground.eventually(lambda: len(ground.claims(case.name)) == 1, "the end of the first pod's claim")
