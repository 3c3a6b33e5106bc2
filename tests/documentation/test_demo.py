"""A reader with two terminals: the first runs the demo as the start page says, the second types the commands of all
pages that ask a cluster, page by page.

Only these differ from a reader's: `git clone` copies this checkout, `make` finds the environment installed, and the
demo prints the addresses of the page and of shadow mode, which differ from the documentation when a port is in use.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.documentation.blocks import ROOT, Block, Command, all_blocks, blocks_of
from tests.support.documentation.terminal import Answer, type_all
from tests.support.patience import LONGEST

NEEDED = ("bash", "git", "make", "kubectl", "curl", "python3")
pytestmark = [
    pytest.mark.timeout(600),  # one shell types all commands
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)} on the PATH"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout to clone"),
]

REPOSITORY = "https://github.com/dra-extender/dra-extender"
LAST = "README.md"
"""Its commands take a pod away that others ask about."""
(START,) = (block for block in all_blocks() if block.place == "the demo's terminal")
TYPED = sorted((block for block in all_blocks() if block.place == "demo"), key=lambda block: block.page == LAST)


@dataclass(frozen=True)
class Demo:
    """One that runs: the folder it was cloned into, its address, and the address of shadow mode."""

    folder: Path
    address: str
    shadow: str


def environment(folder: Path) -> dict[str, str]:
    """A reader's, at a machine on which the dependencies have been installed."""
    installed = folder / "installed"
    installed.mkdir()
    (installed / "bin").symlink_to(Path(sys.executable).parent)
    later = time.time() + 24 * 3600
    for stamp in ("demo.stamp", "dev.stamp"):
        (installed / stamp).touch()
        os.utime(installed / stamp, (later, later))
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "TMPDIR")}
    here = f'[safe]\n directory = *\n[url "{ROOT}"]\n insteadOf = {REPOSITORY}\n'
    (folder / ".gitconfig").write_text(here)
    return kept | {"HOME": str(folder), "MAKEFLAGS": f"VENV={installed}"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The first terminal."""
    folder = tmp_path_factory.mktemp("reader")
    out = folder / "terminal"
    script = "\n".join(command.text for command in START.commands())
    with out.open("w") as target:
        terminal = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment(folder),
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for waits in ("dra-placement/first-fit-pair", "dra-samples/unschedulable"):
            _read(out, rf"{waits} waits: claim", terminal)
        address = _read(out, r"its page, for a browser: http://([\d.]+:\d+)/", terminal)[1]
        shadow = _read(out, r"shadow --service http://([\d.]+:\d+)", terminal)[1]
        cloned = folder / "dra-extender"
        (cloned / ".venv").symlink_to(folder / "installed")
        yield Demo(cloned, address, shadow)
    finally:
        _close(terminal)
    assert not (cloned / ".demo" / "kubeconfig").exists(), "what leads to the cluster goes with it"


def _close(terminal: subprocess.Popen[bytes]) -> None:
    """End the terminal and its processes with SIGTERM; processes in the background ignore Ctrl-C."""
    os.killpg(terminal.pid, signal.SIGTERM)
    terminal.wait(LONGEST)
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        try:
            os.killpg(terminal.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(terminal.pid, signal.SIGKILL)
    raise AssertionError("the demo did not end")


def _read(out: Path, pattern: str, terminal: subprocess.Popen[bytes]) -> re.Match[str]:
    deadline = time.monotonic() + LONGEST
    while not (found := re.search(pattern, out.read_text())):
        assert time.monotonic() < deadline and terminal.poll() is None, f"{pattern!r} did not come\n{out.read_text()}"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def answers(demo: Demo) -> dict[str, list[Answer]]:
    """The second terminal: by block what its commands answered."""
    for page in {block.page for block in TYPED}:
        for block in blocks_of(page):
            if block.kind == "file":
                (demo.folder / block.what).write_text(block.text)
    typed = [(str(block), command) for block in TYPED for command in block.commands()]
    here = {"PATH": os.environ["PATH"], "HOME": str(demo.folder.parent)}
    printed = ("localhost:8888", demo.address), ("localhost:8889", demo.shadow)
    commands = [Command(_replaced(each.text, printed), each.shown) for _, each in typed]
    found: dict[str, list[Answer]] = {}
    for (place, _), answer in zip(typed, type_all(commands, demo.folder, here), strict=True):
        found.setdefault(place, []).append(answer)
    return found


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("block", TYPED, ids=str)
def test_what_a_reader_types_works_and_shows_what_the_page_says(block: Block, answers: dict[str, list[Answer]]) -> None:
    for answer in answers[str(block)]:
        assert answer.is_well, f"{answer.command.text}\nended with {answer.status}\n{answer.output}"
        assert answer.lacking() == [], f"{answer.command.text}\nsays\n{answer.output}"
