"""`dra-extender selector`: which devices a CEL selector matches, and where and why it fails."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from dra_extender.cli import options
from dra_extender.cli.lines import answer_lines
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import FAILED, YES


@options.asks_cluster
def selector(
    source: Source,
    expression: Annotated[str | None, typer.Argument(help="the CEL expression", show_default=False)] = None,
    slices: Annotated[
        str,
        typer.Option(
            "--slice", metavar="FILE", help="ResourceSlices of this file instead; - is standard input",
            show_default=False,
        ),
    ] = "",
    batch: Annotated[
        bool, typer.Option("--batch", help="JSON lines in and out: name, expression, gates, device → name, result")
    ] = False,
    list_attributes: Annotated[bool, typer.Option(help="turn on the feature gate DRAListTypeAttributes")] = False,
    output: options.Output = "text",
) -> None:  # fmt: skip
    """Which devices does this selector match, and why not the others?

    Tried on the ResourceSlices of the cluster, or of a file.

    Exit status: 0 when a device matches, 1 when none does, 2 when the selector does not compile or fails for a device.
    """
    if batch:
        raise typer.Exit(_batch())
    if expression is None:
        raise typer.BadParameter("give an expression, or --batch", param_hint="EXPRESSION")
    from dra_extender.cli.answers.selector import Question, answer

    question = Question(
        expression=expression, slices=slices, list_attributes=list_attributes, output=output, source=source
    )
    raise typer.Exit(asyncio.run(answer(question)))


def _batch() -> int:
    from dra_extender.cel import Programs
    from dra_extender.cel.batch import answer

    programs = Programs()

    def complain(name: str, problem: str) -> dict[str, Any]:
        return {"name": name, "result": "error", "message": problem}

    def said(case: dict[str, Any]) -> dict[str, Any]:
        return answer(case, programs)

    return FAILED if answer_lines(sys.stdin.buffer, sys.stdout.buffer, said, complain) else YES
