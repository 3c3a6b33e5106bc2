"""Tests against a real API server are skipped where there is none, as in tests/e2e."""

import pytest

from tests.e2e.skipping import skip_what_cannot_run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_cannot_run(items)
