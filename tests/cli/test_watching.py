"""Commands with `--watch` against an API server: they answer again when the answer changes, and only then."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dra_extender.cli.answers import answer as answers
from dra_extender.cli.answers.answer import Answer, UnanswerableError
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.main import app
from dra_extender.cli.output import FAILED, NO, YES
from dra_extender.cli.source import Source
from dra_extender.kube.reflector import Watches
from embedded_cluster import RequestFault
from tests.support.patience import LONGEST, until
from tests.support.service.world import World

pytestmark = pytest.mark.usefixtures("restored_logs")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PAUSE", 0.02)
    monkeypatch.setattr(answers, "GAP", 0.02)


@pytest.fixture
def world(world: World) -> World:
    """A pod waits for three GPUs."""
    world.claim("big", count=3)
    world.pod("big", "big")
    return world


class Counting:
    """Says how many pods there are; `asked` counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, snapshot: Snapshot) -> Answer:
        self.asked += 1
        count = len(snapshot.pods)
        if not count:
            raise UnanswerableError("there are no pods")
        return Answer(f"{count}", NO)


async def test_the_answer_is_given_again_when_it_is_another(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    counting, said = Counting(), ""

    def told(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return said.endswith(text)

    following = asyncio.create_task(answers.follow(source, counting))
    await until(lambda: told("1\n"))
    world.store.update({**world.stored("pods", "big"), "spec": world.stored("pods", "big")["spec"]})
    world.claim("unused")
    await until(lambda: counting.asked > 1)
    world.pod("second")
    await until(lambda: told("2\n"))
    following.cancel()
    assert await following == NO
    assert said == "1\n2\n"


async def test_nothing_is_asked_while_nothing_changes(
    world: World, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, progress = 0, Watches.progress

    def counted(watches: Watches) -> object:
        nonlocal looks
        looks += 1
        return progress(watches)

    monkeypatch.setattr(Watches, "progress", counted)
    counting = Counting()
    following = asyncio.create_task(answers.follow(source, counting))
    await until(lambda: counting.asked == 1)
    before = looks
    await until(lambda: looks > before + 5)
    following.cancel()
    assert (await following, counting.asked) == (NO, 1)


async def test_what_is_asked_about_may_go_and_come_back(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    following = asyncio.create_task(answers.follow(source, Counting()))
    await until(lambda: capsys.readouterr().out == "1\n")
    world.store.delete("pods", "big", "default")
    await until(lambda: "there are no pods" in capsys.readouterr().err)
    world.pod("again")
    await until(lambda: capsys.readouterr().out == "1\n")
    following.cancel()
    assert await following == NO


async def test_what_is_not_there_in_the_beginning_is_a_question_that_cannot_be_answered(
    world: World, source: Source
) -> None:
    world.store.delete("pods", "big", "default")
    with pytest.raises(UnanswerableError, match="there are no pods"):
        await answers.follow(source, Counting())


async def test_a_cluster_that_stops_to_answer_is_said(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    following = asyncio.create_task(answers.follow(source, Counting()))
    await until(lambda: capsys.readouterr().out == "1\n")
    world.api.faults.add(RequestFault(status=500))
    world.api.faults.cut_watches()
    await until(lambda: "cannot be watched" in capsys.readouterr().err)
    following.cancel()
    assert await following == NO


def test_a_file_cannot_be_followed() -> None:
    found = CliRunner().invoke(app, ["devices", "--watch", "--from", "cluster.json"])
    assert (found.exit_code, "the file of --from does not change" in found.output) == (FAILED, True)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal with 100 columns and 30 lines."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        with suppress(OSError):
            os.close(end)


@pytest.mark.parametrize(
    ("command", "first", "then", "status"),
    [
        (["why", "big"], "fits none of 3 nodes", "not found", FAILED),
        (["devices"], "6 free", "6 free", YES),
        (["top"], "6 free", "6 free", YES),
        (["headroom", "gpu.example.com"], "6 more fit", "6 more fit", YES),
    ],
)
async def test_a_terminal_is_redrawn_until_ctrl_c(
    world: World, source: Source, terminal: tuple[int, int], command: list[str], first: str, then: str, status: int
) -> None:
    ours, theirs = terminal
    os.set_blocking(ours, False)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dra_extender.cli", *command, "--watch", "--kubeconfig", source.kubeconfig,
        cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    seen = ""

    def shows(text: str) -> bool:
        nonlocal seen
        with suppress(BlockingIOError):
            seen += os.read(ours, 2**16).decode()
        return text in seen

    await until(lambda: shows("Ctrl-C ends"))
    assert seen.startswith("\x1b[H\x1b[2J")
    assert first in seen
    if then != first:
        seen = ""
        world.store.delete("pods", "big", "default")
        await until(lambda: shows(then))
        assert seen.startswith("\x1b[H\x1b[2J")
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), LONGEST) == status
    shows("")
    assert "Traceback" not in seen
