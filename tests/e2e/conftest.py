"""The real control plane for tests: started once, shared, stopped at the end; skipped where it has not been built."""

from collections.abc import Iterator

import pytest

from tests.e2e.components import NotBuiltError, assets
from tests.e2e.controlplane import ControlPlane


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
