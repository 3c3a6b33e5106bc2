"""An API server that is upgraded to Kubernetes 1.37 while pods arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from dra_extender.api.errors import ApiError
from tests.e2e.case import Case
from tests.e2e.components import BINARIES, BUILT, assets, offered
from tests.e2e.controlplane import DRA_FEATURES, ControlPlane
from tests.e2e.ground import Ground

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.own_plane("its API server is upgraded")]

OLDER, NEWER = (max(BUILT.parent.glob(f"v1.{minor}.*"), default=BUILT.parent) for minor in (36, 37))
PODS = 500
MOST_ON_NODE = 110
SECONDS = 240.0
PAUSE = 0.5


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not all((folder / name).exists() for folder in (OLDER, NEWER) for name in BINARIES):
        pytest.skip("needs two releases: make controlplanes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBEBUILDER_ASSETS", str(OLDER))
        with ControlPlane(tmp_path_factory.mktemp("upgrade")) as plane:
            yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    with Ground(plane) as ground:
        yield ground


def create(case: Case, number: int) -> None:
    """Create the pod as a controller would: until the API server confirms it."""
    while True:
        try:
            case.pod(f"pod-{number}", template="each")
            return
        except ApiError:
            time.sleep(PAUSE)


def test_no_pod_is_lost_and_no_device_doubled(
    case: Case, ground: Ground, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in (case.node_added(PODS), *ground.nodes):
        case.publish(node, MOST_ON_NODE)
    case.template("each")
    creating = threading.Thread(target=lambda: list(map(partial(create, case), range(PODS))))
    creating.start()
    ground.eventually(lambda: len(ground.claims(case.name)) > PODS // 5, "some pods", SECONDS)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(NEWER))
    plane.upgrade_apiserver(assets(), offered(DRA_FEATURES))
    creating.join()
    ground.eventually(lambda: "the API server was upgraded" in ground.extender.tail(10**6), "the upgrade", SECONDS)
    names = [f"pod-{number}" for number in range(PODS)]
    ground.eventually(lambda: all(case.phase(name) == "Running" for name in names), "all pods", SECONDS)
    allocations = [claim.allocation for claim in ground.claims(case.name) if claim.allocation is not None]
    held = [result.id for allocation in allocations for result in allocation.devices.results]
    assert (len(held), len(set(held))) == (PODS, PODS)
