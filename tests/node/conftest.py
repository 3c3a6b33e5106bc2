"""Real nodes for tests: a control plane, the extender, and kubelet, containerd and drivers on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.e2e.skipping import skip_without
from tests.support.chart.helm import tool
from tests.support.node.case import NodeCase
from tests.support.node.ground import NodeGround
from tests.support.node.machine import Untouched, alone, missing
from tests.support.node.node import Node
from tests.support.node.site import NodeSite
from tests.support.packaging.image import missing as no_builder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("node")]
    if marked and (why := missing()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("controlplane")
    with alone(tmp_path_factory.getbasetemp()), Untouched(), ControlPlane(directory, node_lifecycle=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def ground(plane: ControlPlane) -> Iterator[NodeGround]:
    with NodeGround(plane) as ground:
        yield ground


@pytest.fixture(scope="session")
def node(ground: NodeGround) -> Iterator[Node]:
    """A node without drivers."""
    with Node(ground.plane, 1) as node:
        yield node


@pytest.fixture(scope="session")
def other(ground: NodeGround) -> Iterator[Node]:
    """A second node without drivers, for tests that need two."""
    with Node(ground.plane, 2) as node:
        yield node


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeSite]:
    """Another cluster with two nodes, for tests that install the chart and remove it again."""
    if problem := no_builder():
        pytest.skip(problem)
    if tool("helm") is None:
        pytest.skip("helm is missing: run `make charttools` (needs Go), or install it")
    with NodeSite(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(autouse=True)
def has_what_is_needed(request: pytest.FixtureRequest, plane: ControlPlane) -> None:
    """Tests say by the marker `needs` which feature gates they rest on; without them they are skipped."""
    needed = {name for marker in request.node.iter_markers("needs") for name in marker.args}
    skip_without(needed, plane.features if needed else (), plane.version)


@pytest.fixture(autouse=True)
def nothing_is_wrong(ground: NodeGround) -> Iterator[None]:
    """During every test: no device twice, nothing overdrawn, no bound pod without its claims."""
    before = ground.invariants.looks
    yield
    ground.eventually(lambda: ground.invariants.looks >= before + 2, "a look at the cluster")
    found, ground.invariants.found = ground.invariants.found, []
    assert found == []


@pytest.fixture
def case(ground: NodeGround) -> Iterator[NodeCase]:
    made = NodeCase(ground)
    made.set_up()
    try:
        yield made
    finally:
        made.tear_down()
