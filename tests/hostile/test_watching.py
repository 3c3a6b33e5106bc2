"""Planted defects are seen: a stall of the loop, growth, a pod that is not bound."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from embedded_cluster.cluster import EmbeddedCluster
from tests.support.patience import until
from tools.hostile import eyes
from tools.hostile.eyes import Eyes
from tools.hostile.observer import Look, Task, running
from tools.hostile.ordinary import Stream, template
from tools.hostile.report import GROWTH
from tools.hostile.service import ROOT, descendants
from tools.hostile.serving import clock, turns
from tools.memory import resident

PLANTED = 1.0


class Planted:
    """The planted service and its process."""

    def __init__(self, url: str, pid: int, session: aiohttp.ClientSession) -> None:
        self.url, self.pid, self._session = url, pid, session

    async def plant(self, path: str) -> None:
        async with self._session.post(self.url + path) as answer:
            assert answer.ok


@pytest.fixture
async def planted() -> AsyncIterator[Planted]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.hostile.planted", stdin=pipe, stdout=pipe, cwd=ROOT
    )
    assert process.stdin is not None and process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with aiohttp.ClientSession() as session:
        yield Planted(url, process.pid, session)
    process.stdin.close()
    await process.wait()


async def test_a_planted_stall_is_seen_and_is_the_services_own(planted: Planted) -> None:
    watching = Eyes()
    await watching.open(Task(planted.pid, planted.url, planted.url, b"{}"))
    try:
        for what in ("probe", "connection", "filter"):
            await until(partial(answered, watching, what), f"an answer to a {what}")
        quiet = eyes.longest(watching.looks)
        start = time.monotonic()
        # A busy machine may keep the observer from asking in time: what is planted once more is seen then.
        planting = asyncio.create_task(stall_again_and_again(planted))
        try:
            found = await until(lambda: stalled(watching, start), "a look at the planted stall")
        finally:
            planting.cancel()
            await asyncio.gather(planting, return_exceptions=True)
    finally:
        await watching.close()
    assert quiet is not None and quiet.own < PLANTED / 2, "nothing was seen before it was planted"
    assert found is not None and found.status == 200
    assert found.cpu < PLANTED / 2, "it slept"


def answered(watching: Eyes, what: str) -> bool:
    return any(look.what == what and look.status == 200 for look in watching.looks)


def stalled(watching: Eyes, start: float) -> Look | None:
    """The longest look since then, when it is about as long as what was planted."""
    found = eyes.longest(watching.between(start, time.monotonic()))
    return found if found is not None and found.own > PLANTED / 2 else None


async def stall_again_and_again(planted: Planted) -> None:
    while True:
        await planted.plant(f"/stall?seconds={PLANTED}")
        await asyncio.sleep(PLANTED)


async def test_a_turn_of_the_loop_is_seen_with_the_processor_time_that_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    ticking = asyncio.create_task(clock(file))
    start = time.monotonic()
    await asyncio.sleep(0)
    spent = time.thread_time() + PLANTED / 2
    while time.thread_time() < spent:
        pass
    await until(lambda: turns(file, start, time.monotonic()))
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    found = eyes.longest(turns(file, start, time.monotonic()))
    assert found is not None and found.own > PLANTED / 4
    assert "test_a_turn_of_the_loop_is_seen" in found.where
    assert turns(file, 0.0, start - PLANTED) == []


async def test_planted_growth_is_seen(planted: Planted) -> None:
    before = resident(planted.pid)
    await planted.plant("/grow?mib=100")
    assert resident(planted.pid) - before > GROWTH


async def test_workers_are_found_and_a_process_that_is_gone_has_no_memory() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    try:
        found = descendants(os.getpid())
    finally:
        await process.communicate(b"\n")
    assert process.pid in found
    assert resident(process.pid) == 0


async def test_a_pod_that_nobody_binds_is_lost_and_one_that_is_bound_is_not() -> None:
    async with EmbeddedCluster(nodes=1, devices=1) as cluster:
        cluster.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ordinary"}})
        cluster.store.create(template())
        stream = Stream(cluster.client, patience=0.0)
        running = asyncio.create_task(stream.run())
        await until(lambda: stream.lost)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await stream.finish()
        assert stream.waited == {}
        assert set(stream.lost) <= {f"ordinary-{number}" for number in range(stream.made)}


def test_each_thread_that_waits_for_a_core_counts_and_only_the_main_thread_works(tmp_path: Path) -> None:
    for thread, seen in (("7", "2000000000 1000000000 5"), ("8", "9000000000 3000000000 5"), ("9", "gone")):
        folder = tmp_path / "7" / "task" / thread
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(seen)
    assert running(7, tmp_path) == (2.0, 4.0)
    assert running(8, tmp_path) == (0.0, 0.0)
