"""Pods with claims on a real node: their containers see the devices that the extender allocated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.node.case import NodeCase
from tests.support.node.driver import TEST_DRIVER
from tests.support.node.node import Node

pytestmark = pytest.mark.node


@pytest.fixture
def driver_of_kubernetes(node: Node, case: NodeCase) -> Iterator[None]:
    """The driver of Kubernetes' own tests, and the class of the test for its devices."""
    case.driver = TEST_DRIVER
    case.device_class(case.name)
    node.test_driver.start()
    case.until_published(4)
    yield
    case.tear_down()
    node.test_driver.stop()


@pytest.mark.usefixtures("driver_of_kubernetes")
def test_the_driver_of_kubernetes_own_tests_sets_the_environment_of_the_claim(case: NodeCase, node: Node) -> None:
    config = [{"opaque": {"driver": TEST_DRIVER, "parameters": {"hello": "world"}}}]
    case.claim("mine", case.request(), config=config)
    case.pod("pod", "mine")
    case.until_runs("pod")
    environment = case.environment(node, "pod")
    assert environment["claim_mine_r"] == "true"
    assert environment["user_hello"] == "world"


def test_a_container_sees_exactly_the_device_in_the_status_of_its_claim(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.claim("mine")
    case.pod("pod", "mine")
    assert case.devices_in(node, "pod") == case.devices("mine")
    assert len(case.devices("mine")) == 1


def test_each_pod_of_a_template_gets_a_device_of_its_own(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.template("template")
    for name in ("first", "second"):
        case.pod(name, template="template")
    seen = [case.devices_in(node, name) for name in ("first", "second")]
    assert sorted(seen) == [["a"], ["b"]]


def test_two_pods_share_a_claim(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    case.claim("shared")
    for name in ("first", "second"):
        case.pod(name, "shared")
    assert [case.devices_in(node, name) for name in ("first", "second")] == [case.devices("shared")] * 2
    assert case.reserved("shared") == {"first", "second"}


def test_of_a_prioritized_list_the_container_sees_the_alternative_that_was_allocated(
    case: NodeCase, node: Node
) -> None:
    case.serve(node, {"name": "small", "attributes": {"size": {"int": 1}}})
    case.claim("best", {"name": "r", "firstAvailable": [sized(case, "big", 2), sized(case, "fallback", 1)]})
    case.pod("pod", "best")
    assert case.devices_in(node, "pod") == ["small"]
    (result,) = case.results("best")
    assert result["request"] == "r/fallback"


def sized(case: NodeCase, name: str, size: int) -> dict[str, object]:
    """An alternative: a device of at least this size."""
    expression = f'device.attributes["{case.driver}"].size >= {size}'
    return {"name": name, "deviceClassName": case.name, "selectors": [{"cel": {"expression": expression}}]}


def test_every_device_of_several_requests_reaches_the_container(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b", "c")
    case.claim("several", case.request("one"), case.request("two", count=2))
    case.pod("pod", "several")
    seen = [case.devices_in(node, "pod", request) for request in ("one", "two")]
    assert list(map(len, seen)) == [1, 2]
    assert [*seen[0], *seen[1]] == case.devices("several")


def test_a_deleted_pod_gives_its_device_to_the_next(case: NodeCase, node: Node) -> None:
    case.serve(node, "only")
    case.template("template")
    case.pod("first", template="template")
    assert case.devices_in(node, "first") == ["only"]
    case.pod("next", template="template")
    case.until_refused("next")
    case.ground.delete(case.pod_path("first"))
    assert case.devices_in(node, "next") == ["only"]
