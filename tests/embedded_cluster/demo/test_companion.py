"""A process that is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from embedded_cluster.demo import companion as module
from embedded_cluster.demo.companion import Companion, ending
from tests.support.patience import until

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")


async def test_a_killed_process_is_started_again_and_stop_ends_it_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.01,))
    told: list[str] = []
    companion = Companion(SLEEPER, tmp_path / "log", told.append)
    running = asyncio.create_task(companion.run())
    await until(lambda: companion.pid)
    first = companion.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: companion.pid not in (None, first))
    last = companion.pid
    assert last is not None and companion.starts == 2
    assert any("killed by SIGKILL" in line for line in told)
    running.cancel()
    await companion.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    assert companion.pid is None


async def test_what_the_process_writes_is_in_the_log(tmp_path: Path) -> None:
    companion = Companion(SLEEPER, tmp_path / "log", lambda line: None)
    running = asyncio.create_task(companion.run())
    await until(lambda: companion.tail() == ["up"])
    running.cancel()
    await companion.stop()
    assert companion.tail() == ["up"]


async def test_a_process_that_fails_is_told_with_its_log(tmp_path: Path) -> None:
    told: list[str] = []
    running = asyncio.create_task(Companion((sys.executable, "-c", "exit(3)"), tmp_path / "log", told.append).run())
    await until(lambda: len(told) > 1)
    running.cancel()
    assert told[1] == f"the service ended (exit status 3); its log is {tmp_path / 'log'}; starting it again in 1 s"


@pytest.mark.parametrize(("code", "words"), [(0, "exit status 0"), (3, "exit status 3"), (-9, "killed by SIGKILL")])
def test_endings_are_told_in_words(code: int, words: str) -> None:
    assert ending(code) == words
