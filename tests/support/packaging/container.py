"""A container of an image, as kubelet would start it for the shipped Deployment: with runc.

Entry point and user are the image's, the root file system is read-only, it has no capability and no way to more
privileges. It uses the network of the machine.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.packaging.image import Image
from tests.support.patience import LONGEST

_MOUNTS = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
)


def specification(image: Image, arguments: Sequence[str]) -> dict[str, Any]:
    """The configuration of the OCI runtime (runtime-spec 1.0): `arguments` replace the image's own."""
    user, group = (int(part) for part in image.config["User"].split(":"))
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group},
            "args": [*image.config["Entrypoint"], *(arguments or image.config.get("Cmd", ()))],
            "env": image.config["Env"],
            "cwd": image.config.get("WorkingDir") or "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": str(image.root), "readonly": True},
        "mounts": _MOUNTS,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


class Container:
    """One that runs; `lines` are those of its log that were read."""

    def __init__(self, process: asyncio.subprocess.Process, runc: Sequence[str], name: str) -> None:
        self._process, self._runc, self._name = process, runc, name
        self.lines: list[str] = []

    async def line(self) -> str:
        """The next line of its log; empty at the end."""
        assert self._process.stderr is not None
        if line := (await asyncio.wait_for(self._process.stderr.readline(), LONGEST)).decode():
            self.lines.append(line)
        return line

    async def inside(self, script: str) -> str:
        """What a script for Python prints inside, as the user of the image."""
        command = (*self._runc, "exec", self._name, "python", "-c", script)
        asked = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, problem = await asked.communicate()
        assert asked.returncode == 0, problem.decode()
        return said.decode()

    async def terminate(self) -> int:
        """Its exit status after what kubelet sends first."""
        self._process.send_signal(signal.SIGTERM)
        while await self.line():
            pass
        return await self._process.wait()

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()
        await (await asyncio.create_subprocess_exec(*self._runc, "delete", "--force", self._name)).wait()


@asynccontextmanager
async def container(image: Image, folder: Path, *arguments: str) -> AsyncIterator[Container]:
    """Started in a folder of its own, and gone at the end."""
    (folder / "config.json").write_text(json.dumps(specification(image, arguments)))
    runc, name = ("runc", f"--root={folder / 'runc'}"), f"dra-extender-{folder.name}"
    process = await asyncio.create_subprocess_exec(
        *runc, "run", f"--bundle={folder}", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    made = Container(process, runc, name)
    try:
        yield made
    finally:
        await made.end()


def output(image: Image, folder: Path, *arguments: str) -> str:
    """What a command of the image prints. Raises AssertionError when its exit status is not 0."""
    (folder / "config.json").write_text(json.dumps(specification(image, arguments)))
    command = ["runc", f"--root={folder / 'runc'}", "run", f"--bundle={folder}", f"dra-extender-{folder.name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    return done.stdout
