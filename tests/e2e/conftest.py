"""The real control plane for tests: one for all, started or found; tests that cannot run against it are skipped."""

from collections.abc import Iterator

import pytest

from tests.e2e.case import Case
from tests.e2e.controlplane import ControlPlane
from tests.e2e.existing import ExistingCluster, RefusedError, chosen
from tests.e2e.extender import Extender
from tests.e2e.ground import HASTY, Ground
from tests.e2e.plane import Plane
from tests.e2e.skipping import skip_what_cannot_run, skip_without

QUICK = {"lease_duration": "10", "renew_deadline": "8", "retry_period": "0.5"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_cannot_run(items)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """The cluster that was named, or a control plane of our own with every beta feature of device allocation."""
    directory, kubeconfig = tmp_path_factory.mktemp("controlplane"), chosen()
    try:
        made = ControlPlane(directory, audit=True) if kubeconfig is None else ExistingCluster(directory, kubeconfig)
        with made as plane:
            yield plane
    except RefusedError as refusal:
        pytest.exit(str(refusal), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def ground(plane: Plane) -> Iterator[Ground]:
    """Nodes whose pods run, the extender as it is shipped, and a second kube-scheduler that calls it."""
    with Ground(plane) as ground:
        yield ground


@pytest.fixture(autouse=True)
def has_what_is_needed(request: pytest.FixtureRequest, plane: Plane) -> None:
    """Tests say by the marker `needs` which feature gates they rest on; without them they are skipped."""
    needed = {name for marker in request.node.iter_markers("needs") for name in marker.args}
    skip_without(needed, plane.features if needed else (), plane.version)


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


@pytest.fixture
def pair(ground: Ground) -> Iterator[tuple[Extender, Extender]]:
    """Two replicas with a short lease instead of the one of the other tests; the first leads."""
    ground.extender.stop()
    first = ground.new_extender("dra-extender-a", server=ground.api.url, **QUICK)
    second = ground.new_extender("dra-extender-b", **QUICK)
    try:
        first.start()
        ground.calls.target = first.url
        second.start(wait=False)
        ground.eventually(lambda: second.is_standby, "the second's start")
        yield first, second
    finally:
        first.stop()
        second.stop()
        ground.calls.target = ground.extender.url
        ground.extender.start()
