"""The contracts on directions hold, and each of them can fail: a planted breach breaks the one it is meant for."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = ("api", "cel", "devices", "allocation")

BREACHES = {
    "rooms": [
        ("app/devices/ledger.py", "import app.allocation.decisions"),
        ("app/kube/client.py", "import app.allocation.decisions"),
        ("app/embedded/kubelet.py", "import app.scheduling.view"),
        ("app/devices/ledger.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import app.http.health"),
        ("app/newroom.py", "import app.api.core"),
    ],
    "scheduling": [
        ("app/scheduling/view.py", "import app.scheduling.wakeups"),
        ("app/scheduling/bind/attempt.py", "import app.scheduling.verbs.filter"),
        ("app/scheduling/newmodule.py", "import app.scheduling.view"),
    ],
    "questions": [
        ("app/scheduling/judgement.py", "import app.scheduling.wakeups"),
        ("app/scheduling/verbs/preempt.py", "import app.scheduling.intake"),
    ],
    "ports": [("app/scheduling/bind/claimwrite.py", "import app.kube.writer")],
    "embedded": [("app/embedded/driver.py", "import app.devices.pools"), ("app/kube/client.py", "import app.cel")],
    "images": [
        ("app/http/health.py", "import app.embedded.driver"),
        ("app/cli/explain.py", "import app.demo.board"),
    ],
    "pure": [
        (f"app/{room}/planted.py", f"import {module}")
        for room, module in zip(PURE, ("time", "random", "uuid", "asyncio"), strict=True)
    ]
    + [("app/devices/planted.py", "import structlog")],
    "circles": [("app/devices/uses.py", "import app.devices.ledger"), ("app/cel/tokens.py", "import app.cel.program")],
}
"""By contract: a module, and a line that must not be in it."""

CASES = [(contract, *breach) for contract, breaches in BREACHES.items() for breach in breaches]


def contracts() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["id"] for contract in config["tool"]["importlinter"]["contracts"]]


def is_kept(contract: str, tree: Path) -> bool:
    """What lint-imports says of one contract for a tree. What it prints must name the contract's kind of answer."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--contract", contract]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert ("1 kept, 0 broken" if done.returncode == 0 else "0 kept, 1 broken") in done.stdout, (
        done.stdout + done.stderr
    )
    return done.returncode == 0


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
def test_without_a_breach_every_contract_is_kept(tree: Path) -> None:
    assert [contract for contract in contracts() if not is_kept(contract, tree)] == []


def test_a_breach_is_planted_for_every_contract() -> None:
    assert sorted(BREACHES) == sorted(contracts())


# --- what imports do not show -----------------------------------------------------------------------------------------

IMPURE = {"now", "utcnow", "today", "setrecursionlimit"}


def impurities(source: str) -> Iterator[str]:
    """Calls that ask the time of day or change the interpreter."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in IMPURE:
            yield f"{ast.unparse(node)} in line {node.lineno}"


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_ask_no_clock_and_leave_the_interpreter_alone(room: str) -> None:
    modules = sorted((ROOT / "app" / room).rglob("*.py"))
    assert modules
    assert [f"{module.name}: {found}" for module in modules for found in impurities(module.read_text())] == []


@pytest.mark.parametrize("line", ["datetime.now(UTC)", "date.today()", "sys.setrecursionlimit(9)"])
def test_a_clock_in_a_pure_room_would_be_noticed(line: str) -> None:
    assert list(impurities(f"x = {line}"))
