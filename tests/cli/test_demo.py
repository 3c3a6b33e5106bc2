"""The demo as people run it: a process of its own with the service beside it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_cluster.demo.places import api_port, claimed, service_port
from tests.support.patience import LONGEST

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WHOLE = 2 * LONGEST
"""Seconds for a whole run, in which many things are waited for; below the timeout of pytest."""


def demo(directory: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "dra_extender.cli", "demo", "--directory", str(directory), *more]


def test_once_places_everything_that_can_be_placed(tmp_path: Path) -> None:
    command = demo(tmp_path, "--once", "--timeout", f"{LONGEST:g}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "18 pods run, 2 wait and say why" in done.stdout
    assert (
        "dra-samples/unschedulable waits, as expected\n  claim no-such-gpu: no device of class gpu.example.com"
        in done.stdout
    )
    assert not (tmp_path / "kubeconfig").exists()


def test_the_tour_tells_what_happens_and_ends(tmp_path: Path) -> None:
    done = subprocess.run(demo(tmp_path, "--tour"), cwd=ROOT, capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [
        "$ dra-extender why unschedulable -n dra-samples\nPod dra-samples/unschedulable fits none of 4 nodes.",
        "pod unschedulable runs on node-",
        "tainted  broken:NoExecute",
        "pod urgent runs on node-",
        "$ kubectl delete pod ",
        "pod whole-node runs on node-",
        "That was the tour.",
    ]
    places = [done.stdout.find(text) for text in told]
    assert -1 not in places and places == sorted(places), done.stdout


def test_a_second_demo_leaves_the_first_its_directory(tmp_path: Path) -> None:
    wanted = tmp_path / "demo"
    with claimed(wanted) as first, claimed(wanted) as second:
        (first / "kubeconfig").touch()
        (second / "kubeconfig").touch()
        assert (first.name, second.name) == ("demo", "demo-2")
    assert not any(tmp_path.rglob("kubeconfig")), "what leads to a cluster ends with it"
    with claimed(wanted) as third:
        assert third == first


def test_once_fails_when_pods_stay_without_their_devices(tmp_path: Path) -> None:
    command = demo(tmp_path, "--once", "--devices", "1", "--timeout", "12")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 1
    assert re.search(r"not settled after 12 s: dra-\S+/\S+", done.stdout)


def test_two_demos_at_once_do_not_get_the_same_port() -> None:
    with service_port(0) as first, service_port(0) as second, service_port(7777) as wanted:
        assert len({first, second}) == 2 and wanted == 7777


def test_a_port_that_is_taken_is_refused_by_the_name_of_its_option() -> None:
    """Whoever listens there may be the service of another demo, and would bind pods that it does not know."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(OSError, match=f"^--service-port {taken}: Address already in use; name another port"):
            service_port(taken).__enter__()
        with pytest.raises(OSError, match=f"^--port {taken}: Address already in use; name another port"):
            api_port(taken)
    assert api_port(0) == 0


def test_a_directory_that_cannot_be_written_is_refused_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file cannot be written: File exists; name another with --directory$"):
        claimed(tmp_path / "file").__enter__()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A demo that stays up, writing plain lines into a file."""
    out = tmp_path / "out"
    with out.open("w") as target:
        process = subprocess.Popen(demo(tmp_path), cwd=ROOT, stdout=target, stderr=subprocess.STDOUT, text=True)
    yield process, out
    if process.poll() is None:
        process.kill()
        process.wait()


def until(out: Path, pattern: str, count: int = 1) -> list[str]:
    """Wait for `count` matches in the output."""
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        found = re.findall(pattern, out.read_text())
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{pattern!r} did not come in:\n{out.read_text()}")


def test_the_service_may_be_killed_while_the_demo_runs(running: tuple[subprocess.Popen[str], Path]) -> None:
    process, out = running
    (first,) = until(out, r"runs as process (\d+)")
    until(out, r"dra-preemption/training-. is gone")
    until(out, r"dra-samples/unschedulable waits: claim no-such-gpu")
    os.kill(int(first), signal.SIGKILL)
    until(out, r"the service ended \(killed by SIGKILL\)")
    pids = until(out, r"runs as process (\d+)", 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONGEST) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids[1]), 0)
    (gone,) = re.findall(r"(\S+) is gone", out.read_text())
    assert gone.startswith("dra-preemption/training-"), "nothing is lost but the pod that made room"
