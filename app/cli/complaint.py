"""What commands say on standard error.

Promises: standard output has the answer alone; everything else is told here, in one form.
"""

from __future__ import annotations

from collections.abc import Iterable

import typer

from app.devices.problems import Problem


def complain(problem: object) -> None:
    """Why the command cannot do what it was asked."""
    typer.secho(f"dra-extender: {problem}", err=True, fg=typer.colors.RED)


def note(problems: Iterable[Problem]) -> None:
    """What is wrong in the cluster that was looked at, and what to do about each."""
    for found in problems:
        typer.secho(f"note: {found.object}: {found.what}: {found.advice}", err=True, fg=typer.colors.YELLOW)
