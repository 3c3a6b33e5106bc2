"""What a run of tests that was killed left on the machine does not hinder the next one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.node.machine import FOLDERS, alone, mounts_below, remove_leftovers, run

pytestmark = pytest.mark.node
NAMES = "dra-gone"


def test_processes_mounts_folders_and_bridges_of_a_killed_run_are_removed() -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"{NAMES}9-", dir=FOLDERS))
    (folder / "logs").mkdir()
    run("mount", "-t", "tmpfs", "logs", folder / "logs")
    run("ip", "link", "add", "name", f"{NAMES}9", "type", "bridge")
    kubelet = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"{folder}/kubelet"])
    remove_leftovers(NAMES)
    assert kubelet.wait() < 0
    assert mounts_below(folder) == []
    assert not folder.exists()
    assert NAMES not in run("ip", "-brief", "link")


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="another run of tests has nodes on this machine"), alone(tmp_path):
        pass
