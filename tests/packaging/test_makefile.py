"""`make` on a machine that has not all it takes: for the demo, what is missing is named, and is not in the way
afterwards; the module of Karpenter is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.patience import LONGEST

ROOT = Path(__file__).parents[2]
OLDER = f"""#!/bin/sh
# Python 3.9, as far as `-c PROGRAM` shows it
exec {sys.executable} -c "import sys; sys.version_info = (3, 9, 2)
$2"
"""
REFUSING = """#!/bin/sh
# new enough, and without ensurepip
test "$1" = -c && exit 0
echo "called with $1 $2"; exit 1
"""

GO = """#!/bin/sh
# as go does, it names no folder for a module that is not downloaded
module={folder}/module
case "$1 $2" in
"mod download") mkdir -p $module/pkg/apis/crds $module/kwok/apis/crds
    echo pkg > $module/pkg/apis/crds/a.yaml; echo kwok > $module/kwok/apis/crds/a.yaml ;;
"list -m") test ! -d $module || echo $module ;;
"build "*) touch ../bin/karpenter ;;
esac
"""


def made(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """`make demo` in an environment of this folder, with this program as Python."""
    program = folder / "python"
    program.write_text(python)
    program.chmod(0o755)
    command = ["make", "--no-print-directory", "demo", f"PYTHON={program}", f"VENV={folder / 'venv'}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)


def test_a_python_that_is_too_old_is_named_with_the_way_to_name_another(tmp_path: Path) -> None:
    done = made(tmp_path, OLDER)
    assert done.returncode != 0
    assert f"{tmp_path}/python is Python 3.9, and 3.11 or newer is needed: name another one" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_that_was_left_without_pip_is_made_again(tmp_path: Path) -> None:
    """As Debian leaves it where python3-venv is missing."""
    unfinished = tmp_path / "venv" / "bin" / "python"
    unfinished.parent.mkdir(parents=True)
    unfinished.symlink_to(sys.executable)
    done = made(tmp_path, REFUSING)
    assert done.returncode != 0
    assert "called with -m venv" in done.stdout


def test_karpenter_is_built_with_its_definitions_when_its_module_was_never_downloaded(tmp_path: Path) -> None:
    source, here = ROOT / "tests" / "controlplane", tmp_path / "controlplane"
    shutil.copytree(source / "karpenter", here / "karpenter")
    for name in ("Makefile", "go.mod"):
        shutil.copy(source / name, here)
    program = tmp_path / "go"
    program.write_text(GO.format(folder=tmp_path))
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "MAKEFLAGS": ""}
    command = ["make", "--no-print-directory", "karpenter"]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    assert (here / "bin" / "karpenter.yaml").read_text() == "pkg\nkwok\n"
