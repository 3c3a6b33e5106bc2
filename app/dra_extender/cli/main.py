"""All commands under one name. `questions` has the commands that answer questions; each other command has a module.

Promises of completion, for shells and for kubectl, which calls a plugin's `kubectl_complete-…`: typer alone finds the
completions, from the declared commands; no cluster is read.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, cast

import typer
from typer.completion import get_completion_inspect_parameters

from dra_extender.cli import allocate, demo, questions, serve, snapshot
from dra_extender.cli.questions import Answering, Source, command
from dra_extender.limits import FRAMES
from dra_extender.unexpected import ErrorPlace, tolerate
from dra_extender.version import VERSION


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


_ANSWERS: Final[Mapping[str, tuple[type[Source], str, str]]] = {
    "why": (questions.WhyOptions, "why", "answer"),
    "devices": (questions.DevicesOptions, "devices", "list_devices"),
    "top": (questions.TopOptions, "devices", "sum_devices"),
    "headroom": (questions.HeadroomOptions, "capacity", "answer_headroom"),
    "whatif": (questions.WhatIfOptions, "capacity", "answer_what_if"),
    "simulate": (questions.SimulateOptions, "capacity", "answer_simulate"),
    "compact": (questions.CompactOptions, "capacity", "answer_compact"),
    "migrate": (questions.MigrateOptions, "capacity", "answer_migrate"),
    "audit": (questions.AuditOptions, "devices", "audit"),
    "selector": (questions.SelectorOptions, "devices", "try_selector_on_devices"),
    "shadow": (questions.ShadowOptions, "service", "answer_shadow"),
}
"""By command: its options, and the module and name of the function that answers."""


def _answering(module: str, function: str) -> Answering:
    """Loads the client, the CEL interpreter and YAML."""
    from dra_extender.cli.answers import capacity, devices, service, why

    modules = {"capacity": capacity, "devices": devices, "service": service, "why": why}
    return cast(Answering, getattr(modules[module], function))


_QUESTIONS: Final = {name: command(kind, partial(_answering, *at)) for name, (kind, *at) in _ANSWERS.items()}
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
    asked = _variable(name)
    if asked in os.environ:
        get_completion_inspect_parameters()  # registers the shells, as typer does with its own completion options
    app(prog_name=name, complete_var=asked)


def kubectl_complete() -> None:
    """The entry point of `kubectl_complete-dra`, which kubectl asks what may follow `kubectl dra …`."""
    sys.stdout.write(kubectl_words(app, sys.argv[1:]) + "\n")


_NO_FILES: Final = ":4"
"""Cobra's directive at the end of an answer: do not complete file names."""
_FILES: Final = ":0"


def kubectl_words(main: Callable[..., object], words: Sequence[str]) -> str:
    """The answer that kubectl reads: a line for each word that completes the last one, and a directive."""
    name = "kubectl-dra"
    os.environ |= {
        _variable(name): "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": shlex.join([name, *words]),
    }
    get_completion_inspect_parameters()
    found = io.StringIO()
    with contextlib.redirect_stdout(found), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main(prog_name=name, complete_var=_variable(name))
    offered = [line for line in found.getvalue().splitlines() if line.strip()]
    return "\n".join([*offered, _NO_FILES if offered else _FILES])


def _variable(name: str) -> str:
    """The environment variable in which a shell's script passes its request to the command of this name."""
    return f"_{name.replace('-', '_').replace(' ', '_').upper()}_COMPLETE"


def _log_unexpected(place: ErrorPlace, problem: Exception, about: dict[str, object]) -> None:
    from dra_extender.service.logs import log_unexpected

    log_unexpected(place, problem, about)
