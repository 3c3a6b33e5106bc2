"""What commands say on standard error.

Promises: standard output has the answer alone; everything else is told here, in one form.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import typer

from dra_extender.cli.colours import is_coloured
from dra_extender.cli.columns import folded, width_of
from dra_extender.devices.validity import ObjectProblem
from dra_extender.plurals import counted

MOST: Final = 10
"""Objects that are told beside an answer that is about something else."""


def complain(problem: object) -> None:
    """Why the command cannot do what it was asked."""
    _say(f"dra-extender: {problem}", typer.colors.RED)


def note(problems: Iterable[ObjectProblem]) -> None:
    """What is wrong in the cluster that was looked at, and what to do about each."""
    found = list(problems)
    for problem in found[:MOST]:
        _say(f"note: {problem.object}: {problem.what}: {problem.advice}", typer.colors.YELLOW)
    if len(found) > MOST:
        others = counted(len(found) - MOST, "more object")
        _say(f"note: {others} cannot be used: /insight/problems of the service has them", typer.colors.YELLOW)


def _say(text: str, colour: str) -> None:
    text = folded(text, width_of(sys.stderr))
    typer.secho(text, err=True, fg=colour, color=is_coloured(sys.stderr))
