"""What the project declares is what it imports, and the lock files pin that and agree with each other."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
GROUPS: dict[str, list[Any]] = PYPROJECT["dependency-groups"]

IMPORTED_FOR_US = {
    "httptools": "dra_extender.http.protocol extends uvicorn.protocols.http.httptools_impl, which imports it",
    "tzdata": "zoneinfo reads it where the system has no time zones",
}
OUR_OWN = {
    "dra_extender",
    "embedded_cluster",
    "bench",
    "charts",
    "loadtest",
    "reference",
    "requirements",
    "tests",
    "tools",
}

Pins = dict[str, str]
"""Name of a distribution → the line that pins it, with its marker."""


def names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def imported(folder: Path, *, without: Path | None = None) -> set[str]:
    """The distributions that the modules below a folder import, anywhere in them."""
    distributions = metadata.packages_distributions()
    sources = (path for path in folder.rglob("*.py") if without is None or without not in path.parents)
    roots = {root for path in sources for root in _roots(ast.parse(path.read_text()))}
    foreign = roots - sys.stdlib_module_names - OUR_OWN
    return {canonicalize_name(distributions.get(root, [root])[0]) for root in foreign}


def _roots(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def pins(lock: str) -> Pins:
    lines = (ROOT / "requirements" / f"{lock}.lock").read_text().splitlines()
    return {line.partition("==")[0]: line for line in lines if re.match(r"[a-z0-9]", line)}


def test_the_service_declares_what_it_imports_and_nothing_else() -> None:
    everything_but_the_cluster = imported(ROOT / "app", without=ROOT / "app" / "embedded_cluster")
    assert names(PROJECT["dependencies"]) == everything_but_the_cluster | IMPORTED_FOR_US.keys()


def test_the_demo_declares_what_only_the_embedded_cluster_imports() -> None:
    only_there = imported(ROOT / "app" / "embedded_cluster") - names(PROJECT["dependencies"])
    assert names(PROJECT["optional-dependencies"]["demo"]) == only_there


def test_tests_and_measurements_declare_what_they_import() -> None:
    places = ("tests", "bench", "loadtest", "reference", "requirements")
    used = {name for place in places for name in imported(ROOT / place)}
    developing = (item for group in GROUPS.values() for item in group if isinstance(item, str))
    declared = names([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["demo"], *developing])
    assert used - declared == set()


def test_an_import_for_us_is_one() -> None:
    needed = metadata.requires("uvicorn") or []
    assert any(requirement.startswith("httptools") for requirement in needed)
    assert "ZoneInfo" in (ROOT / "app" / "dra_extender" / "cel" / "library" / "times.py").read_text()


def test_images_build_with_the_tools_that_the_package_names() -> None:
    assert set(GROUPS["build"]) >= set(PYPROJECT["build-system"]["requires"])


@pytest.mark.parametrize(
    ("lock", "declared"),
    [
        ("runtime", PROJECT["dependencies"]),
        ("demo", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["demo"]),
        ("build", GROUPS["build"]),
    ],
)
def test_a_lock_file_pins_what_is_declared_in_the_versions_of_all_others(lock: str, declared: list[str]) -> None:
    pinned, developing = pins(lock), pins("dev")
    assert names(declared) - pinned.keys() == set(), "run make lock"
    assert {name: developing.get(name) for name in pinned} == pinned, "run make lock"


@pytest.mark.parametrize(
    ("lock", "shared"),
    [("docs", {"click", "jinja2", "pyyaml", "requests"}), ("driver", {"aiohttp", "pydantic", "pyyaml", "requests"})],
)
def test_what_has_an_environment_of_its_own_is_pinned_and_what_it_shares_with_others_in_the_same_version(
    lock: str, shared: set[str]
) -> None:
    pinned, developing = pins(lock), pins("dev")
    assert names(GROUPS[lock]) - pinned.keys() == set(), "run make lock"
    version = re.compile(r"==([^\s;]+)")
    assert {name: version.findall(pinned[name]) for name in shared} == {
        name: version.findall(developing[name]) for name in shared
    }, "run make lock"


def test_lock_files_name_no_package_index() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert "://" not in lock.read_text(), lock.name
