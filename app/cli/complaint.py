"""What commands say on standard error.

Promises: standard output has the answer alone; everything else is told here, in one form.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import typer

from app.cli.colours import is_coloured
from app.devices.problems import Problem


def complain(problem: object) -> None:
    """Why the command cannot do what it was asked."""
    _say(f"dra-extender: {problem}", typer.colors.RED)


def note(problems: Iterable[Problem]) -> None:
    """What is wrong in the cluster that was looked at, and what to do about each."""
    for found in problems:
        _say(f"note: {found.object}: {found.what}: {found.advice}", typer.colors.YELLOW)


def _say(text: str, colour: str) -> None:
    typer.secho(text, err=True, fg=colour, color=is_coloured(sys.stderr))
