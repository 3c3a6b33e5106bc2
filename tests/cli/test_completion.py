"""What shells and kubectl offer for a word that is not complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dra_extender.cli.main import app, kubectl_words

ROOT = Path(__file__).parents[2]


def offered(*words: str) -> list[str]:
    """The words that kubectl gets, and its directive."""
    return [line.partition("\t")[0] for line in kubectl_words(app, words).splitlines()]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put into it is gone afterwards."""
    monkeypatch.setattr(os, "environ", dict(os.environ))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["hea"], ["headroom", ":4"]),
        (["top", "na"], ["namespaces", ":4"]),
        (["devices", "--state", "sh"], ["shared", ":4"]),
        (["why", "-o", ""], ["text", "json", "yaml", ":4"]),
        (["why", "--all-"], ["--all-namespaces", ":4"]),
        (["snapshot", ""], [":0"]),
    ],
)
def test_commands_and_their_options_are_offered(words: list[str], found: list[str]) -> None:
    assert offered(*words) == found


def test_names_of_the_cluster_are_not_offered(capfd: pytest.CaptureFixture[str]) -> None:
    assert offered("why", "") == offered("devices", "--node", "") == [":0"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --comm")])
def test_each_shell_gets_a_script(shell: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dra_extender.cli"],
        cwd=ROOT, env={**os.environ, "_DRA_EXTENDER_COMPLETE": f"source_{shell}"}, capture_output=True, text=True,
    )  # fmt: skip
    assert said in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    command = tmp_path / "dra-extender"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dra_extender.cli "$@"\n')
    command.chmod(0o755)
    script = """
    source <(_DRA_EXTENDER_COMPLETE=source_bash dra-extender)
    COMP_WORDS=(dra-extender headr); COMP_CWORD=1; _dra_extender_completion dra-extender; echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("headroom\n", "")


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
def test_kubectl_completes_the_plugin(tmp_path: Path) -> None:
    for name, entry in (("kubectl_complete-dra", "kubectl_complete"), ("kubectl-dra", "main")):
        script = tmp_path / name
        code = f"from dra_extender.cli.main import {entry}; {entry}()"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
        script.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["kubectl", "__complete", "dra", "hea"],
        cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["headroom", ":4"]
