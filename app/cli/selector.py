"""`dra-extender selector`: which devices a CEL selector matches, and where and why it fails."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from app.cli.lines import answer_lines


def selector(
    expression: Annotated[str | None, typer.Argument(help="the CEL expression", show_default=False)] = None,
    slices: Annotated[
        str | None,
        typer.Option("--slice", metavar="FILE|-", help="ResourceSlices (YAML or JSON) instead of those of the cluster"),
    ] = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="JSON lines in and out: name, expression, gates, device → name, result")
    ] = False,
    list_attributes: Annotated[bool, typer.Option(help="turn on the feature gate DRAListTypeAttributes")] = False,
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Try a device selector on ResourceSlices.

    Exit status: 0 when a device matches, 1 when none does, 2 when the selector does not compile or fails for a device.
    """
    if batch:
        raise typer.Exit(_batch())
    if expression is None:
        raise typer.BadParameter("give an expression, or --batch", param_hint="EXPRESSION")
    from app.cli.trials import show_trials

    raise typer.Exit(show_trials(expression, slices, list_attributes, kubeconfig, context))


def _batch() -> int:
    from app.cel.batch import answer

    def complain(name: str, problem: str) -> dict[str, Any]:
        return {"name": name, "result": "error", "message": problem}

    return 1 if answer_lines(sys.stdin.buffer, sys.stdout.buffer, answer, complain) else 0
