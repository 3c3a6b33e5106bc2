"""The real kubectl, and shells in which it is at hand."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")


class Kubectl:
    """Runs kubectl against one server; what it remembers between two calls goes to `folder`."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(folder / "cache")}
        self._folder = folder

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        """The output of `kubectl ARGUMENTS`, which has to end with `code`; with another than 0, its complaints."""
        assert KUBECTL is not None
        out, problems = await self._run(code, KUBECTL, *arguments)
        return out if code == 0 else problems

    async def shell(self, line: str, code: int = 0) -> str:
        """What a line of a shell prints to the terminal, pipes and all; the whole of it has to end with `code`."""
        out, problems = await self._run(code, "bash", "-o", "pipefail", "-c", line)
        return out + problems

    async def _run(self, code: int, program: str, *arguments: str) -> tuple[str, str]:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            env=self._environment,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, problems = await process.communicate()
        assert process.returncode == code, f"{arguments}: {out.decode()}{problems.decode()}"
        return out.decode(), problems.decode()


def rows(output: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in output.splitlines()]
