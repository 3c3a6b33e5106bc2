"""Restarts of what runs on a node: pods keep their devices, and nothing is given twice."""

from __future__ import annotations

import pytest

from tests.e2e.space import Body
from tests.support.node.case import NodeCase, slices_of
from tests.support.node.node import Node

pytestmark = pytest.mark.node


def test_pods_run_on_while_kubelet_restarts_and_the_next_pod_gets_the_other_device(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.pod_with_claim("before")
    (kept,) = case.devices_in(node, "before")
    started = container_of(case, "before")["containerID"]
    node.stop_kubelet()
    case.pod_with_claim("after")
    case.until_bound("after")
    node.start_kubelet()
    (got,) = case.devices_in(node, "after")
    assert {kept, got} == {"a", "b"}
    assert container_of(case, "before")["containerID"] == started


def test_a_driver_that_comes_back_with_more_devices_serves_waiting_pods(case: NodeCase, node: Node) -> None:
    driver = case.serve(node, "a")
    case.pod_with_claim("first")
    assert case.devices_in(node, "first") == ["a"]
    case.pod_with_claim("second")
    case.until_refused("second")
    driver.stop()
    driver.start(slices_of("a", "b"))
    assert case.devices_in(node, "second") == ["b"]
    assert case.phase("first") == "Running"


def test_an_allocated_pod_starts_when_its_driver_is_back(case: NodeCase, node: Node) -> None:
    driver = case.serve(node, "a")
    driver.stop()
    case.pod_with_claim("pod")
    case.until_bound("pod")
    assert case.devices("pod") == ["a"]
    driver.start(slices_of("a"))
    assert case.devices_in(node, "pod") == ["a"]


def test_a_rolling_update_of_the_driver_serves_pods_before_during_and_after(case: NodeCase, node: Node) -> None:
    """The new instance has one more device, in one more slice, so it publishes a new generation of the pool."""
    old = case.serve(node, "a", "b", instance="old")
    (generation,) = case.generations()
    case.pod_with_claim("before")
    new = case.driver_on(node, "new")
    new.start([*slices_of("a", "b"), *slices_of("c")])
    case.pod_with_claim("during")
    seen = [case.devices_in(node, name) for name in ("before", "during")]
    old.stop()
    case.until_published(3)
    assert min(case.generations()) > generation
    case.pod_with_claim("after")
    seen.append(case.devices_in(node, "after"))
    assert sorted(seen) == [["a"], ["b"], ["c"]]


def test_after_a_reboot_pods_have_the_devices_they_had_and_the_next_gets_another(case: NodeCase, node: Node) -> None:
    """Nothing of the pods is left on the node but what kubelet keeps on disk."""
    driver = case.serve(node, "a", "b")
    case.pod_with_claim("pod")
    (kept,) = case.devices_in(node, "pod")
    before = container_of(case, "pod")["containerID"]
    driver.kill()
    node.power_off()
    node.power_on()
    driver.start(slices_of("a", "b"))

    def restarted() -> bool:
        status = container_of(case, "pod")
        return "running" in status["state"] and status["containerID"] != before

    case.ground.eventually(restarted, "restart of the pod")
    assert case.devices("pod") == [kept]
    case.pod_with_claim("next")
    (got,) = case.devices_in(node, "next")
    assert {kept, got} == {"a", "b"}


def test_the_device_of_a_pod_that_was_deleted_while_its_node_was_down_goes_to_the_next(
    case: NodeCase, node: Node
) -> None:
    driver = case.serve(node, "only")
    case.pod_with_claim("pod")
    assert case.devices_in(node, "pod") == ["only"]
    driver.kill()
    node.power_off()
    case.delete_pod("pod")
    case.until_free("pod")
    case.pod_with_claim("next")
    case.until_bound("next")
    node.power_on()
    driver.start(slices_of("only"))
    assert case.devices_in(node, "next") == ["only"]


def container_of(case: NodeCase, pod: str) -> Body:
    """The status of the container of a pod."""
    return dict(case.stored_pod(pod)["status"]["containerStatuses"][0])
