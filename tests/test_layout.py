"""Packages of tests contain tests; what they share is in `tests/support`."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
WITH_SUPPORT = {"e2e"}
"""Packages that are not divided yet."""


def test_packages_hold_tests_and_nothing_else() -> None:
    modules = [path.relative_to(TESTS) for path in TESTS.glob("*/**/*.py")]
    others = [
        str(path)
        for path in modules
        if path.parts[0] not in {"support"} | WITH_SUPPORT
        and path.name != "conftest.py"
        and not path.name.startswith("test_")
    ]
    assert len(modules) > 100
    assert others == []


def test_support_holds_no_tests() -> None:
    assert list((TESTS / "support").rglob("test_*.py")) == []
