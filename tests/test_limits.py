"""The table of limits: each limit has its reason, and a test by the name that it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dra_extender import limits
from dra_extender.limits import Limit

TABLE = {name: value for name, value in vars(limits).items() if isinstance(value, Limit)}


@pytest.fixture(scope="module")
def tests() -> set[str]:
    """The names of all tests."""
    modules = (ast.parse(path.read_text()) for path in Path(__file__).parent.rglob("test_*.py"))
    functions = (node for module in modules for node in ast.walk(module))
    return {node.name for node in functions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("limit", TABLE.values(), ids=TABLE)
def test_each_limit_has_a_reason_and_a_test(limit: Limit, tests: set[str]) -> None:
    assert limit > 0
    assert limit.reason
    assert limit.test in tests
