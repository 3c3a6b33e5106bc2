"""Tests of the real server are skipped where it has not been built."""

import pytest

from tests.e2e.components import NotBuiltError, assets


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        assets()
    except NotBuiltError as problem:
        for item in items:
            if item.get_closest_marker("e2e"):
                item.add_marker(pytest.mark.skip(reason=str(problem)))
