"""Tests that leave something behind fail themselves, and no other test does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PLANTED = """
import asyncio, socket, subprocess, sys, threading

async def test_a_task_that_runs_on():
    globals()["kept"] = asyncio.create_task(asyncio.sleep(3600))

async def test_a_connection_that_stays_open():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    globals()["kept"] = await asyncio.open_connection(*server.sockets[0].getsockname())
    server.close()

def test_a_thread_that_runs_on():
    globals()["stop"] = threading.Event()
    threading.Thread(target=globals()["stop"].wait, name="worker", daemon=True).start()

def test_a_socket_that_only_the_collector_finds():
    ring = [socket.socket()]
    ring.append(ring)

def test_a_process_that_is_not_waited_for():
    ring = [subprocess.Popen([sys.executable, "-c", "pass"])]
    ring.append(ring)

async def test_a_coroutine_that_is_not_awaited():
    ring = [asyncio.sleep(0)]
    ring.append(ring)

async def test_what_is_cancelled_or_closed_may_take_its_time():
    asyncio.create_task(asyncio.sleep(3600), name="cancelled").cancel()
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.close()
    server.close()

async def test_a_process_that_has_ended():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    await process.wait()

def test_nothing():
    pass
"""


def test_each_leftover_fails_the_test_that_left_it(tmp_path: Path) -> None:
    planted, results = tmp_path / "test_planted.py", tmp_path / "results.xml"
    planted.write_text(PLANTED)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.leftovers", "-p", "no:cacheprovider"]
    options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--junit-xml={results}", f"--rootdir={tmp_path}"]
    done = subprocess.run([*command, *options, str(planted)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    problems = {
        case.attrib["name"]: (case.findtext("error") or "") + (case.findtext("failure") or "")
        for case in ElementTree.parse(results).iter("testcase")
    }
    words = {
        "test_a_task_that_runs_on": "tasks are left over",
        "test_a_connection_that_stays_open": "connections are left over",
        "test_a_thread_that_runs_on": "threads are left over: ['worker']",
        "test_a_socket_that_only_the_collector_finds": "unclosed <socket.socket",
        "test_a_process_that_is_not_waited_for": "is still running",
        "test_a_coroutine_that_is_not_awaited": "coroutine 'sleep' was never awaited",
        "test_what_is_cancelled_or_closed_may_take_its_time": "",
        "test_a_process_that_has_ended": "",
        "test_nothing": "",
    }
    assert set(problems) == set(words)
    for name, text in words.items():
        assert text in problems[name] and bool(text) == bool(problems[name]), f"{name}: {problems[name]}"
