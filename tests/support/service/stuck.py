"""A service with two planted bugs: a decision on a claim with a request called `stuck` never ends and fills memory; a
slice called `stuck` is never decoded.

`python -m tests.support.service.stuck MIB ...` runs `dra-extender serve ...`. The kernel kills a process that reaches
its memory limit. Here the process kills itself when it has filled MIB mebibytes. It fills a MiB in about ten ms of
CPU time.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from msgspec.structs import replace

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.resource import ResourceSlice
from dra_extender.cli.main import app
from dra_extender.kube import resources


def plant(limit: int) -> None:
    prepare: Any = vars(Decisions)["_prepare"]

    def stuck(self: Decisions, claims: Any, *rest: Any) -> Any:
        filled: list[bytes] = []
        while any(request.name == "stuck" for claim in claims for request in claim.spec.devices.requests):
            if len(filled) < limit:
                filled.append(b"x" * 2**20)
                sum(range(400_000))
            elif limit:
                os.kill(os.getpid(), signal.SIGKILL)
        return prepare(self, claims, *rest)

    Decisions._prepare = stuck  # type: ignore[method-assign]


def plant_slice() -> None:
    slices = resources.RESOURCE_SLICES

    def stuck(data: Any) -> ResourceSlice:
        while b'"name":"stuck"' in bytes(data):
            pass
        return slices.decode(data)

    resources.RESOURCE_SLICES = replace(slices, decode=stuck)


if __name__ == "__main__":
    plant_slice()
    plant(int(sys.argv[1]))
    app(["serve", *sys.argv[2:]])
