"""The image of the Dockerfile, built on this machine with buildah, where no registry need be in reach.

Its base is made of Debian packages and replaces the base that the Dockerfile names by digest: the same releases of
Debian and Python, and in /usr/local a Python with a pip of its own. All that is built lies below one folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dra_extender.version import VERSION

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TOOLS = ("buildah", "mmdebstrap", "runc")
PACKAGES = (*TOOLS, "debian-archive-keyring")
BASE, NAME = "localhost/python:base", "localhost/dra-extender:built"
DEPLOYED = f"docker.io/library/dra-extender:{VERSION}"
"""What a container runtime calls the image that values name dra-extender."""
KEPT = "DRA_EXTENDER_IMAGE"
"""The variable with the file that the image is kept in, so that it is built once. Unset, nothing is kept."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""What this machine trusts, the proxy before its package index perhaps among it."""


def missing() -> str:
    """Why nothing can be built here, and what helps; empty when it can."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        remedy = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        return f"no {' and no '.join(absent)} on this machine: {remedy}"
    if os.geteuid() != 0:
        return "an image is built and started as root here: run `make image` as root"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"nobody can start containers on this machine: {tried.stderr.strip()}" if tried.returncode else ""


class Entry(NamedTuple):
    """What a file of an image is, less its content."""

    kind: int
    mode: int
    owner: int
    size: int
    """Bytes; 0 for folders, whose size is the file system's."""


def entries(root: Path) -> dict[str, Entry]:
    """Everything in a root file system, by path."""
    found: dict[str, Entry] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            seen = path.lstat()
            size = 0 if stat.S_ISDIR(seen.st_mode) else seen.st_size
            found[f"/{path.relative_to(root)}"] = Entry(
                stat.S_IFMT(seen.st_mode), stat.S_IMODE(seen.st_mode), seen.st_uid, size
            )
    return found


@dataclass(frozen=True)
class Image:
    """What was built: its configuration, and the files that it adds to its base."""

    config: Mapping[str, Any]
    root: Path
    base: Path
    log: str


class Builder:
    """Buildah with storage of its own. Raises CalledProcessError with what it printed as a note."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        places = (f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", "--storage-driver=vfs")
        self._command = ("buildah", *places)

    def image(self) -> Image:
        """Base and image, in that order. The image is kept if the environment says where."""
        self._base()
        log = self._build(NAME, ROOT, f"--build-arg=BASE={BASE}")
        if kept := os.environ.get(KEPT):
            self._write(Path(kept))
        described = json.loads(self._run("inspect", "--type=image", NAME))
        return Image(described["OCIv1"]["config"], self._mounted(NAME), self._mounted(BASE), log)

    def archive(self) -> Path:
        """A file that container runtimes import. A file that was kept is used again."""
        file = Path(os.environ.get(KEPT) or self._folder / "image.tar")
        if not file.exists():
            self._base()
            self._build(NAME, ROOT, f"--build-arg=BASE={BASE}")
            self._write(file)
        return file

    def _write(self, file: Path) -> None:
        file.unlink(missing_ok=True)
        self._run("push", NAME, f"docker-archive:{file}:{DEPLOYED}")

    def _base(self) -> None:
        (codename,) = re.findall(r"^ARG BASE=python:\S+-slim-(\w+)@", DOCKERFILE, re.MULTILINE)
        context = self._folder / "base"
        context.mkdir()
        hooks = ['chroot "$1" python3 -m venv /usr/local']
        if CERTIFICATES.exists():
            hooks.append(f"copy-in {CERTIFICATES} {CERTIFICATES.parent}")
        made = ("mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates,python3-venv")
        _done(*made, *(f"--customize-hook={hook}" for hook in hooks), codename, str(context / "root.tar"))
        (context / "Dockerfile").write_text("FROM scratch\nADD root.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n")
        self._build(BASE, context)

    def _build(self, name: str, context: Path, *options: str) -> str:
        return self._run("build", "--isolation=chroot", f"--tag={name}", *options, str(context))

    def _mounted(self, name: str) -> Path:
        container = self._run("from", "--pull-never", name).strip()
        return Path(self._run("mount", container).strip())

    def _run(self, *arguments: str) -> str:
        return _done(*self._command, *arguments)


def _done(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        done.check_returncode()
    except subprocess.CalledProcessError as problem:
        problem.add_note(done.stdout + done.stderr)
        raise
    return done.stdout
