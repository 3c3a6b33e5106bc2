"""Completion of command lines: for shells, and for kubectl, which asks a plugin's `kubectl_complete-…`.

Promises: what may follow a word is found by typer alone, from the commands as they are declared.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer
from typer.completion import get_completion_inspect_parameters

_NO_FILES: Final = ":4"
"""Cobra's directive that ends an answer: no names of files beside these."""
_FILES: Final = ":0"


class Shell(StrEnum):
    """The shells that are spoken to."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="the shell that reads the script")]
) -> None:
    """Print a script with which a shell completes commands, options and names.

    bash: `source <(dra-extender completion bash)`, zsh: the same with zsh, fish: `dra-extender completion fish |
    source`. If kubectl itself is completed, `kubectl dra` is
    completed too: kubectl runs `kubectl_complete-dra` from the folder of `kubectl-dra`.
    """
    name = (ctx.find_root().info_name or "").replace(" ", "-")
    os.environ[variable(name)] = f"source_{shell.value}"
    know_shells()
    ctx.find_root().command.main(args=[], prog_name=name, complete_var=variable(name))


def kubectl_words(main: Callable[..., object], words: Sequence[str]) -> str:
    """What kubectl reads: a line for each word that may stand in place of the last one, and a directive."""
    name = "kubectl-dra"
    os.environ |= {
        variable(name): "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": shlex.join([name, *words]),
    }
    know_shells()
    found = io.StringIO()
    with contextlib.redirect_stdout(found), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main(prog_name=name, complete_var=variable(name))
    offered = [line for line in found.getvalue().splitlines() if line.strip()]
    return "\n".join([*offered, _NO_FILES if offered else _FILES])


def know_shells() -> None:
    """Typer knows its shells from when it makes its own options for completion, which these commands do not have: under
    kubectl they would install what nobody calls.
    """
    get_completion_inspect_parameters()


def variable(name: str) -> str:
    """The variable of the environment in which a shell's script asks the command of this name."""
    return f"_{name.replace('-', '_').replace(' ', '_').upper()}_COMPLETE"
