"""The contracts on directions hold, and each of them can fail: a planted breach breaks the one it is meant for."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("dra_extender", "embedded_cluster")
PURE = ("api", "cel", "devices", "allocation", "placement")

BREACHES = {
    "layers": [
        ("app/dra_extender/devices/ledger.py", "import dra_extender.allocation.decisions"),
        ("app/dra_extender/kube/client.py", "import dra_extender.allocation.decisions"),
        ("app/dra_extender/scheduling/view.py", "import dra_extender.workers.pool"),
        ("app/dra_extender/workers/pool.py", "import dra_extender.scheduling.ports"),
        (
            "app/dra_extender/devices/ledger.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dra_extender.http.application",
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
        ("app/dra_extender/scheduling/verbs/preempt.py", "import dra_extender.scheduling.handle"),
        ("app/dra_extender/scheduling/view.py", "import dra_extender.placement.learner"),
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
        ("app/dra_extender/http/application.py", "import embedded_cluster.driver"),
        ("app/dra_extender/cli/questions.py", "import embedded_cluster.demo.board"),
    ],
    "pure": [
        ("app/dra_extender/cel/program.py", "from threading import Lock"),
        ("app/dra_extender/api/core.py", "import os"),
    ],
    "circles": [
        ("app/dra_extender/devices/usage.py", "import dra_extender.devices.ledger"),
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
"""By contract: its packages, and the packages outside the project that none of them may import."""

CONTRACTS = {
    contract["id"]: contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def answer(tree: Path, contract: str = "") -> str:
    """What lint-imports prints for a tree, about one contract or about all."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "app"), "COLUMNS": "1000"}
    options = ["--contract", contract] if contract else []
    done = subprocess.run([*command, *options], cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"Contracts: \d+ kept, \d+ broken", done.stdout), done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def planted(tree: Path, lines: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Modules with one more line each, for as long as the block lasts; modules that do not exist are made."""
    with contextlib.ExitStack() as cleanup:
        for module, line in lines:
            path = tree / module
            before = path.read_text() if path.exists() else None
            cleanup.callback(path.unlink if before is None else functools.partial(path.write_text, before))
            path.write_text((before or '"""Planted."""\n') + f"\n{line}\n")
        yield


def dotted(module: str) -> str:
    return module.removeprefix("app/").removesuffix(".py").replace("/", ".")


def named(contract: str, module: str, line: str) -> str:
    """How lint-imports names a planted breach. A circle is named by its package, so each package has one at most."""
    if contract == "circles":
        return f"No cycles are allowed in {dotted(module).rpartition('.')[0]}."
    if not (ROOT / module).exists():
        return f"- {dotted(module)}\n"
    statement = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Import | ast.ImportFrom)][-1]
    found = statement.module or "" if isinstance(statement, ast.ImportFrom) else statement.names[0].name
    return f"{dotted(module)} -> {found if found.startswith(OURS) else found.partition('.')[0]} (l."


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and of their contracts."""
    made = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "app", made / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("contract", BREACHES)
def test_every_planted_breach_of_a_contract_is_named(tree: Path, contract: str) -> None:
    """All breaches of a contract are planted together; the answer names the import, or the module without a layer."""
    with planted(tree, BREACHES[contract]):
        text = answer(tree, contract)
    assert "0 kept, 1 broken" in text
    assert [line for breach in BREACHES[contract] if (line := named(contract, *breach)) not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("contract", OUTSIDE)
def test_every_import_of_a_forbidden_package_is_named(tree: Path, contract: str) -> None:
    packages, modules = OUTSIDE[contract][0], OUTSIDE[contract][1].split()
    imports = "\n".join(f"import {module}" for module in modules)
    with planted(tree, [(f"app/dra_extender/{package}/planted.py", imports) for package in packages]):
        text = answer(tree, contract)
    wanted = {f"dra_extender.{package} is not allowed to import {each}:" for package in packages for each in modules}
    assert wanted - set(text.splitlines()) == set()


@pytest.mark.slow
def test_without_a_breach_every_contract_is_kept(tree: Path) -> None:
    assert f"{len(CONTRACTS)} kept, 0 broken" in answer(tree)


def test_a_breach_is_planted_for_every_contract() -> None:
    assert sorted(BREACHES) == sorted(CONTRACTS)


# --- what imports do not show -----------------------------------------------------------------------------------------

IMPURE_NAMES = {"open", "input", "print", "breakpoint"}
IMPURE_ATTRIBUTES = {"now", "utcnow", "today", "setrecursionlimit"}
PURE_PACKAGES = {
    "__future__", "array", "bisect", "cachetools", "calendar", "collections", "contextlib", "copy", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fnmatch", "functools", "hashlib", "ipaddress", "itertools", "math",
    "msgspec", "operator", "re", "re2", "struct", "typing", "weakref", "zoneinfo",
}  # fmt: skip
"""What pure packages import from outside. zoneinfo reads the rules of a zone from the system or from tzdata."""

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
        yield from (package for name in names if (package := name.partition(".")[0]) not in OURS)


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


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_ask_no_clock_open_no_file_and_leave_the_interpreter_alone(package: str) -> None:
    modules = sorted((ROOT / "app" / "dra_extender" / package).rglob("*.py"))
    assert modules
    assert [f"{module.name}: {found}" for module in modules for found in impurities(module.read_text())] == []


def test_pure_packages_import_from_outside_only_what_is_pure() -> None:
    modules = [module for package in PURE for module in (ROOT / "app" / "dra_extender" / package).rglob("*.py")]
    assert {package for module in modules for package in imported(module.read_text())} == PURE_PACKAGES


@pytest.mark.parametrize(
    "line", ["import glob", "import os.path as p", "from codecs import open as o", "def f():\n    import platform"]
)
def test_another_import_in_a_pure_package_would_be_noticed(line: str) -> None:
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
