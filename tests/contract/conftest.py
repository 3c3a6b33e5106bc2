"""Makes the modules beside the tests importable: with import mode importlib their folders are not on the path."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the real server are skipped where it has not been built."""
    from controlplane import NotBuiltError, assets

    try:
        assets()
    except NotBuiltError as problem:
        for item in items:
            if item.get_closest_marker("e2e"):
                item.add_marker(pytest.mark.skip(reason=str(problem)))
