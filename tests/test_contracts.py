"""The contracts on directions hold, and each of them can fail: a planted breach breaks the one it is meant for."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = ("api", "cel", "devices", "allocation", "placement")

BREACHES = {
    "layers": [
        ("app/dra_extender/devices/ledger.py", "import dra_extender.allocation.decisions"),
        ("app/dra_extender/kube/client.py", "import dra_extender.allocation.decisions"),
        ("app/dra_extender/scheduling/view.py", "import dra_extender.workers.pool"),
        ("app/dra_extender/workers/pool.py", "import dra_extender.scheduling.ports"),
        (
            "app/dra_extender/devices/ledger.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dra_extender.http.health",
        ),
        ("app/dra_extender/newpackage.py", "import dra_extender.api.core"),
    ],
    "scheduling": [
        ("app/dra_extender/scheduling/view.py", "import dra_extender.scheduling.requeue"),
        ("app/dra_extender/scheduling/bind/attempt.py", "import dra_extender.scheduling.verbs.filter"),
        ("app/dra_extender/scheduling/newmodule.py", "import dra_extender.scheduling.view"),
        ("app/dra_extender/scheduling/warmup.py", "import dra_extender.scheduling.extender"),
    ],
    "questions": [
        ("app/dra_extender/scheduling/feasibility.py", "import dra_extender.scheduling.requeue"),
        ("app/dra_extender/scheduling/verbs/preempt.py", "import dra_extender.scheduling.intake"),
        ("app/dra_extender/scheduling/view.py", "import dra_extender.placement.placement"),
        ("app/dra_extender/insight/headroom.py", "import dra_extender.scheduling.deferred"),
    ],
    "ports": [
        ("app/dra_extender/scheduling/bind/claimwrite.py", "import dra_extender.kube.writer"),
        ("app/dra_extender/scheduling/view.py", "import urllib.request"),
    ],
    "composition": [("app/dra_extender/service/engine.py", "import dra_extender.http.metrics")],
    "embedded": [
        ("app/embedded_cluster/driver.py", "import dra_extender.devices.pools"),
        ("app/embedded_cluster/demo/show.py", "import dra_extender.service.settings"),
    ],
    "images": [
        ("app/dra_extender/http/health.py", "import embedded_cluster.driver"),
        ("app/dra_extender/cli/why.py", "import embedded_cluster.demo.board"),
    ],
    "pure": [
        ("app/dra_extender/cel/program.py", "from threading import Lock"),
        ("app/dra_extender/api/core.py", "import os"),
    ],
    "circles": [
        ("app/dra_extender/devices/uses.py", "import dra_extender.devices.ledger"),
        ("app/dra_extender/cel/tokens.py", "import dra_extender.cel.program"),
    ],
}
"""By contract: a module, and a line that must not be in it."""

OUTSIDE = {
    "ports": (
        ("scheduling",),
        "aiohttp fastapi http httptools kubernetes_asyncio select selectors socket ssl starlette subprocess urllib "
        "uvicorn",
    ),
    "pure": (
        PURE,
        "_thread aiohttp asyncio builtins concurrent contextvars ctypes fastapi http io kubernetes_asyncio logging "
        "mmap multiprocessing os pathlib queue random secrets select selectors shutil signal socket socketserver ssl "
        "starlette structlog subprocess sys tempfile threading time urllib uuid uvicorn",
    ),
}
"""By contract: its rooms, and the packages outside this one that none of them may import."""

CASES = [(contract, *breach) for contract, breaches in BREACHES.items() for breach in breaches]


def contracts() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["id"] for contract in config["tool"]["importlinter"]["contracts"]]


def told(contract: str, tree: Path) -> tuple[bool, str]:
    """What lint-imports says of one contract for a tree: whether it is kept, and all that it prints."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--contract", contract]
    environment = {**os.environ, "PYTHONPATH": str(tree / "app")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert ("1 kept, 0 broken" if done.returncode == 0 else "0 kept, 1 broken") in done.stdout, (
        done.stdout + done.stderr
    )
    return done.returncode == 0, done.stdout


def is_kept(contract: str, tree: Path) -> bool:
    return told(contract, tree)[0]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of its contracts."""
    made = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "app", made / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "module", "line"), CASES)
def test_a_planted_breach_breaks_the_contract(tree: Path, contract: str, module: str, line: str) -> None:
    path = tree / module
    before = path.read_text() if path.exists() else None
    path.write_text((before or '"""Planted."""\n') + f"\n{line}\n")
    try:
        assert not is_kept(contract, tree)
    finally:
        path.unlink() if before is None else path.write_text(before)


@pytest.mark.slow
@pytest.mark.parametrize("contract", OUTSIDE)
def test_every_import_of_what_a_room_may_not_know_is_found(tree: Path, contract: str) -> None:
    rooms, modules = OUTSIDE[contract][0], OUTSIDE[contract][1].split()
    planted = [tree / f"app/dra_extender/{room}/planted.py" for room in rooms]
    for path in planted:
        path.write_text('"""Planted."""\n\n' + "".join(f"import {module}\n" for module in modules))
    try:
        _, answer = told(contract, tree)
    finally:
        for path in planted:
            path.unlink()
    wanted = {f"dra_extender.{room} is not allowed to import {module}:" for room in rooms for module in modules}
    assert wanted - set(answer.splitlines()) == set()


@pytest.mark.slow
def test_without_a_breach_every_contract_is_kept(tree: Path) -> None:
    assert [contract for contract in contracts() if not is_kept(contract, tree)] == []


def test_a_breach_is_planted_for_every_contract() -> None:
    assert sorted(BREACHES) == sorted(contracts())


# --- what imports do not show -----------------------------------------------------------------------------------------

IMPURE_NAMES = {"open", "input", "print", "breakpoint"}
IMPURE_ATTRIBUTES = {"now", "utcnow", "today", "setrecursionlimit"}
PURE_PACKAGES = {
    "__future__", "array", "bisect", "cachetools", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "functools", "hashlib", "ipaddress", "itertools", "math", "msgspec", "operator", "re",
    "re2", "struct", "typing", "weakref", "zoneinfo",
}  # fmt: skip
"""What pure rooms import from outside. zoneinfo reads the rules of a zone from the system or from tzdata."""

HIDING_NAMES = {"__import__", "__builtins__", "__loader__", "__spec__", "eval", "exec", "compile", "globals"}
HIDING_PACKAGES = {"importlib", "imp", "pkgutil", "runpy", "zipimport"}


def impurities(source: str) -> Iterator[str]:
    """What asks the time of day, opens files, writes to the terminal or changes the interpreter."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in IMPURE_ATTRIBUTES:
            yield ast.unparse(node)
        elif isinstance(node, ast.Name) and node.id in IMPURE_NAMES:
            yield node.id


def imported(source: str) -> Iterator[str]:
    """The packages outside this one that a module imports."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (
            package for name in names if (package := name.partition(".")[0]) not in ("dra_extender", "embedded_cluster")
        )


def hidden_imports(source: str) -> Iterator[str]:
    """What could import without an import statement, past every contract."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in HIDING_NAMES:
            yield node.id
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules":
            yield "sys.modules"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in HIDING_PACKAGES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in HIDING_PACKAGES:
            yield node.module or ""


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_ask_no_clock_open_no_file_and_leave_the_interpreter_alone(room: str) -> None:
    modules = sorted((ROOT / "app" / "dra_extender" / room).rglob("*.py"))
    assert modules
    assert [f"{module.name}: {found}" for module in modules for found in impurities(module.read_text())] == []


def test_pure_rooms_import_from_outside_only_what_is_pure() -> None:
    modules = [module for room in PURE for module in (ROOT / "app" / "dra_extender" / room).rglob("*.py")]
    assert {package for module in modules for package in imported(module.read_text())} == PURE_PACKAGES


@pytest.mark.parametrize(
    "line", ["import glob", "import os.path as p", "from codecs import open as o", "def f():\n    import platform"]
)
def test_another_import_in_a_pure_room_would_be_noticed(line: str) -> None:
    assert set(imported(line)) - PURE_PACKAGES


def test_every_import_is_an_import_statement() -> None:
    modules = sorted((ROOT / "app").rglob("*.py"))
    found = {str(module.relative_to(ROOT)): sorted(hidden_imports(module.read_text())) for module in modules}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    ["datetime.now(UTC)", "date.today()", "sys.setrecursionlimit(9)", "open('/etc/hosts')", "list(map(open, ()))"],
)
def test_a_breach_that_needs_no_import_would_be_noticed(line: str) -> None:
    assert list(impurities(f"x = {line}"))


@pytest.mark.parametrize(
    "line",
    [
        "__import__('time')",
        "import importlib",
        "import importlib.util as u",
        "from importlib import import_module",
        "from importlib.metadata import version",
        "eval('1')",
        "exec('import time')",
        "run = exec",
        "__builtins__['open']",
        "import runpy",
        "sys.modules['dra_extender.allocation']",
    ],
)
def test_a_hidden_import_would_be_noticed(line: str) -> None:
    assert list(hidden_imports(line))
