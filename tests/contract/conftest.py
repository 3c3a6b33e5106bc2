"""Tests of the real server are skipped where it has not been built."""

import pytest

from tests.e2e.collection import skip_what_cannot_run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_cannot_run(items)
