"""The real control plane for tests: started once, shared, stopped at the end; skipped where it has not been built."""

from collections.abc import Iterator

import pytest

from tests.e2e.case import Case
from tests.e2e.components import NotBuiltError, assets
from tests.e2e.controlplane import ControlPlane
from tests.e2e.ground import HASTY, Ground


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        assets()
    except NotBuiltError as problem:
        for item in items:
            if item.get_closest_marker("e2e"):
                item.add_marker(pytest.mark.skip(reason=str(problem)))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager with every beta feature of device allocation."""
    with ControlPlane(tmp_path_factory.mktemp("controlplane"), audit=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    """Nodes whose pods run, the extender as it is shipped, and a second kube-scheduler that calls it."""
    with Ground(plane) as ground:
        yield ground


@pytest.fixture(autouse=True)
def has_what_is_needed(request: pytest.FixtureRequest, plane: ControlPlane) -> None:
    """Tests say by the marker `needs` which feature gates they rest on; without them they are skipped."""
    needed = {name for marker in request.node.iter_markers("needs") for name in marker.args}
    if missing := sorted(needed - plane.features):
        pytest.skip(f"{', '.join(missing)} not on in Kubernetes {plane.version}")


@pytest.fixture(autouse=True)
def nothing_is_wrong(ground: Ground) -> Iterator[None]:
    """During every test, whatever it does: no device twice, nothing overdrawn, no bound pod without its claims."""
    before = ground.invariants.looks
    yield
    ground.eventually(lambda: ground.invariants.looks >= before + 2, "a look at the cluster")
    found, ground.invariants.found = ground.invariants.found, []
    assert found == []


@pytest.fixture
def case(ground: Ground) -> Iterator[Case]:
    made = Case(ground)
    made.set_up()
    try:
        yield made
    finally:
        made.tear_down()


@pytest.fixture(scope="module")
def hasty(ground: Ground) -> Iterator[str]:
    """The name of one more scheduler, which gives up on a bind after two seconds."""
    ground.start_hasty_scheduler()
    yield HASTY
    ground.plane.stop_component(HASTY)
