"""What shells and kubectl offer for a word that is not complete."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dra_extender.cli import completion
from dra_extender.cli.completion import kubectl_words
from dra_extender.cli.main import app
from dra_extender.cli.source import Source
from embedded_cluster import RequestFault
from embedded_cluster.hardware import GPU_DRIVER
from tests.support.patience import LONGEST
from tests.support.service.world import World

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(world: World) -> World:
    world.pod("first")
    world.pod("other")
    return world


def offered(*words: str) -> list[str]:
    """The words that kubectl is told, and its directive."""
    return [line.partition("\t")[0] for line in kubectl_words(app, words).splitlines()]


async def asked(source: Source, command: str, *words: str) -> list[str]:
    return await asyncio.to_thread(offered, command, "--kubeconfig", source.kubeconfig, *words)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put into it is gone afterwards, and a busy machine gets its time."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(completion, "SECONDS", LONGEST)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["why", ""], ["first", "other", ":4"]),
        (["why", "fi"], ["first", ":4"]),
        (["why", "pod/"], ["pod/first", "pod/other", ":4"]),
        (["why", "default/o"], ["default/other", ":4"]),
        (["why", "-n", "default", "o"], ["other", ":4"]),
        (["why", "-n", "de"], ["default", ":4"]),
        (["compact", "o"], ["other", ":4"]),
        (["whatif", "--without-pod", "o"], ["other", ":4"]),
        (["devices", "--class", ""], [GPU_DRIVER, ":4"]),
        (["devices", "--driver", ""], [GPU_DRIVER, ":4"]),
        (["headroom", "gpu"], [GPU_DRIVER, ":4"]),
    ],
)
async def test_names_of_the_cluster_are_offered(
    world: World, source: Source, words: list[str], found: list[str]
) -> None:
    command, *more = words
    assert await asked(source, command, *more) == found


async def test_nodes_are_offered(world: World, source: Source) -> None:
    assert await asked(source, "devices", "--node", "") == [*world.nodes, ":4"]
    assert await asked(source, "whatif", "--add-node", "") == [*(f"like={name}" for name in world.nodes), ":4"]


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


@pytest.mark.parametrize("words", [["--kubeconfig", "/nowhere"], ["--from", "/nowhere"], ["--context", "none"]])
def test_without_a_cluster_nothing_is_offered_and_nothing_is_said(
    words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "KUBECONFIG", "/nowhere")
    assert offered("why", *words, "") == [":0"]
    assert capfd.readouterr() == ("", "")


async def test_a_cluster_that_does_not_answer_is_not_waited_for(
    world: World, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.05)
    stuck = asyncio.Event()
    world.api.faults.add(RequestFault(until=stuck))
    assert await asked(source, "why", "") == [":0"]
    stuck.set()


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --comm")])
def test_each_shell_gets_a_script(shell: str, said: str) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert said in done.stdout
    assert (done.exit_code, done.stderr) == (0, "")


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    command = tmp_path / "dra-extender"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dra_extender.cli "$@"\n')
    command.chmod(0o755)
    script = """
    source <(dra-extender completion bash)
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
