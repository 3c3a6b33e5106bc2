"""All commands under one name. `questions` has the commands that answer questions; each other command has a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from dra_extender.cli import allocate, completion, demo, questions, serve, snapshot
from dra_extender.cli.questions import Answering, Source, command
from dra_extender.limits import FRAMES
from dra_extender.unexpected import ErrorPlace, tolerate
from dra_extender.version import VERSION


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


def _answers() -> Mapping[str, Answering]:
    """By command: what answers it. These modules load the client, the CEL interpreter and YAML."""
    from dra_extender.cli.answers import capacity, devices, selector, why

    return {
        "why": why.answer,
        "devices": devices.list_devices,
        "top": devices.sum_devices,
        "headroom": capacity.answer_headroom,
        "whatif": capacity.answer_what_if,
        "compact": capacity.answer_compact,
        "audit": devices.audit,
        "selector": selector.answer,
    }


_KINDS: Final[Mapping[str, type[Source]]] = {
    "why": questions.WhyOptions,
    "devices": questions.DevicesOptions,
    "top": questions.TopOptions,
    "headroom": questions.HeadroomOptions,
    "whatif": questions.WhatIfOptions,
    "compact": questions.CompactOptions,
    "audit": questions.AuditOptions,
    "selector": questions.SelectorOptions,
}
_QUESTIONS: Final = {name: command(kind, name, _answers) for name, kind in _KINDS.items()}
_PANELS: Final[dict[str, dict[str, Callable[..., None]]]] = {
    "Questions about a cluster": _QUESTIONS,
    "Offline": {"snapshot": snapshot.snapshot, "allocate": allocate.allocate},
    "The service": {"serve": serve.serve, "demo": demo.demo},
}

app = typer.Typer(
    name="dra-extender",
    help="A scheduler extender for Dynamic Resource Allocation: kube-scheduler calls it, and it picks the node and the "
    "devices of each pod.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def dra_extender(
    asked: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="print the version and exit")
    ] = False,
) -> None:
    """The flags before the name of a command."""


for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)


def main() -> None:
    """The entry point of `dra-extender` and `kubectl-dra`; the help shows the name that was typed.

    Unexpected errors that a command survives are logged, not raised.
    """
    sys.setrecursionlimit(FRAMES)  # for deep selectors
    tolerate(_log_unexpected)
    name = "kubectl dra" if Path(sys.argv[0]).stem == "kubectl-dra" else "dra-extender"
    asked = completion.variable(name)
    if asked in os.environ:
        completion.know_shells()
    app(prog_name=name, complete_var=asked)


def kubectl_complete() -> None:
    """The entry point of `kubectl_complete-dra`, which kubectl asks what may follow `kubectl dra …`."""
    sys.stdout.write(completion.kubectl_words(app, sys.argv[1:]) + "\n")


def _log_unexpected(place: ErrorPlace, problem: Exception, about: dict[str, object]) -> None:
    from dra_extender.service.logs import log_unexpected

    log_unexpected(place, problem, about)
