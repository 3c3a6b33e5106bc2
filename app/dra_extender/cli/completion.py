"""Completion of command lines, for shells and for kubectl, which calls a plugin's `kubectl_complete-…`.

Promises: typer alone finds the completions, from the declared commands. Completion reads no cluster.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from typer.completion import get_completion_inspect_parameters

_NO_FILES: Final = ":4"
"""Cobra's directive at the end of an answer: do not complete file names."""
_FILES: Final = ":0"


def kubectl_words(main: Callable[..., object], words: Sequence[str]) -> str:
    """The answer that kubectl reads: a line for each word that completes the last one, and a directive."""
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
    """Register the shells with typer, which otherwise does it with its own completion options. These commands lack
    those options, because kubectl would not call what they install.
    """
    get_completion_inspect_parameters()


def variable(name: str) -> str:
    """The environment variable in which a shell's script passes its request to the command of this name."""
    return f"_{name.replace('-', '_').replace(' ', '_').upper()}_COMPLETE"
