"""A DRA driver that others wrote: it gives network interfaces to containers, not variables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.node.case import NodeCase
from tests.support.node.driver import INSTALLED, NETWORK_DRIVER, NetworkDriver
from tests.support.node.node import Node

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(not INSTALLED.exists(), reason="the driver is not installed: run `make node`"),
]


@pytest.fixture
def interfaces(node: Node, case: NodeCase) -> Iterator[set[str]]:
    """What the driver publishes, and the class of the test for it."""
    case.driver = NETWORK_DRIVER
    case.device_class(case.name)
    driver = NetworkDriver(node.place)
    made = {"dummy-a", "dummy-b"}
    try:
        driver.start(*made)
        case.until_published(2)
        yield made
        case.tear_down()
    finally:
        driver.stop()


def test_containers_have_the_network_interfaces_of_their_claims(
    case: NodeCase, node: Node, interfaces: set[str]
) -> None:
    assert {device["name"] for device in case.published()} == interfaces
    of_type = f'device.attributes["{NETWORK_DRIVER}"].type == "dummy"'  # the driver goes by names
    seen = set()
    for name in ("first", "second"):
        case.claim(name, case.request(selectors=[{"cel": {"expression": of_type}}]))
        case.pod(name, name)
        assert interfaces_in(case, node, name) == set(case.devices(name))
        seen |= set(case.devices(name))
    assert seen == interfaces
    case.pod_with_claim("third")
    case.until_refused("third")


def interfaces_in(case: NodeCase, node: Node, pod: str) -> set[str]:
    """The interfaces of its container, except lo and eth0, which every pod has."""
    case.until_runs(pod)
    return set(case.environment(node, pod)["interfaces"].split()) - {"lo", "eth0"}
