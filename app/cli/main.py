"""All commands under one name. A command is a module beside this one; adding one is one line in `_COMMANDS`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli import (
    allocate,
    audit,
    compact,
    demo,
    devices,
    headroom,
    selector,
    serve,
    snapshot,
    top,
    version,
    whatif,
    why,
    workload,
)
from app.unexpected import Place, tolerate

_COMMANDS = {
    "serve": serve.serve,
    "demo": demo.demo,
    "why": why.why,
    "explain": why.why,
    "devices": devices.devices,
    "top": top.top,
    "headroom": headroom.headroom,
    "whatif": whatif.whatif,
    "snapshot": snapshot.snapshot,
    "audit": audit.audit,
    "compact": compact.compact,
    "workload": workload.workload,
    "allocate": allocate.allocate,
    "selector": selector.selector,
    "version": version.version,
}

app = typer.Typer(
    name="dra-extender",
    help="Devices for pods beside a stock kube-scheduler: an extender that picks the node and the exact devices.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def dra_extender(
    asked: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=version.print_if, help="print the version and exit")
    ] = False,
) -> None:
    """The flags before the name of a command."""


for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


FRAMES: Final = 5_000
"""How many Python functions may be called within each other. The deepest selector that Kubernetes accepts takes 3,000
(`app.cel.program`). Frames of Python functions live on the heap, and JSON nested this deeply needs less than a tenth of
a thread's stack.
"""


def main() -> None:
    """The entry point of `dra-extender` and `kubectl-dra`; the help has the name that people type.

    Bugs that a command can outlive are logged, not raised.
    """
    sys.setrecursionlimit(FRAMES)
    tolerate(_log_unexpected)
    app(prog_name="kubectl dra" if Path(sys.argv[0]).stem == "kubectl-dra" else "dra-extender")


def _log_unexpected(place: Place, problem: Exception, about: dict[str, object]) -> None:
    from app.service.logs import log_unexpected

    log_unexpected(place, problem, about)
