"""All commands under one name. A command is a module beside this one; adding one is one line in `_PANELS`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from dra_extender.cli import (
    allocate,
    audit,
    compact,
    completion,
    demo,
    devices,
    headroom,
    replay,
    selector,
    serve,
    snapshot,
    top,
    version,
    whatif,
    why,
    workload,
)
from dra_extender.unexpected import Place, tolerate

_PANELS: Final[dict[str, dict[str, Callable[..., None]]]] = {
    "Questions to a cluster": {
        "why": why.why,
        "explain": why.why,
        "devices": devices.devices,
        "top": top.top,
        "headroom": headroom.headroom,
        "whatif": whatif.whatif,
        "compact": compact.compact,
        "audit": audit.audit,
        "workload": workload.workload,
        "selector": selector.selector,
    },
    "Offline": {"snapshot": snapshot.snapshot, "allocate": allocate.allocate},
    "The service": {"serve": serve.serve, "demo": demo.demo},
    "This command": {"completion": completion.completion, "version": version.version},
}
_QUESTIONS, _OFFLINE, *_ = _PANELS
_UNLISTED: Final = frozenset({"explain"})
"""Other names of commands; help has the usual ones."""

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


for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel, hidden=_name in _UNLISTED)(_command)
app.add_typer(replay.replay(_PANELS[_QUESTIONS], _UNLISTED), name="replay", rich_help_panel=_OFFLINE)


def main() -> None:
    """The entry point of `dra-extender` and `kubectl-dra`; the help has the name that people type.

    Bugs that a command can outlive are logged, not raised.
    """
    tolerate(_log_unexpected)
    name = "kubectl dra" if Path(sys.argv[0]).stem == "kubectl-dra" else "dra-extender"
    asked = completion.variable(name)
    if asked in os.environ:
        completion.know_shells()
    app(prog_name=name, complete_var=asked)


def kubectl_complete() -> None:
    """The entry point of `kubectl_complete-dra`, which kubectl asks what may follow `kubectl dra …`."""
    sys.stdout.write(completion.kubectl_words(app, sys.argv[1:]) + "\n")


def _log_unexpected(place: Place, problem: Exception, about: dict[str, object]) -> None:
    from dra_extender.service.logs import log_unexpected

    log_unexpected(place, problem, about)
