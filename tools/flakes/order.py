"""A plugin of pytest: tests in an order of chance, repeatable by its seed, because none may rest on another."""

from __future__ import annotations

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", type=int, default=0, help="seed of the order of tests; 0: as they stand in the files")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if seed := config.getoption("--order"):
        random.Random(seed).shuffle(items)
