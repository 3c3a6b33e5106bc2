"""`dra-extender headroom`: how many more pods of a kind fit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

MOST: Final = 2_000


def headroom(
    device_class: Annotated[
        str | None, typer.Argument(metavar="CLASS", help="the DeviceClass of the pods' devices", show_default=False)
    ] = None,
    filename: Annotated[
        Path | None,
        typer.Option("--filename", "-f", help="a ResourceClaim or its template, not a class", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="devices that each pod wants of the class")] = 1,
    after_compaction: Annotated[
        bool, typer.Option("--after-compaction", help="also after the moves that compact advises")
    ] = False,
    scheduler: Annotated[
        list[str] | None,
        typer.Option("--scheduler-name", help="as for compact: whose pods may be moved; everybody's by default"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="decisions that are made at most")] = MOST,
    output: Annotated[Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="how to say it")] = "text",
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    source: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="a file that snapshot wrote", show_default=False),
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """How many more pods with devices of this class fit, or with these claims? Reads the cluster and decides as the
    service would, one pod after the other.

    Looks at devices alone: not at CPU, memory and taints of nodes. Cordoned nodes are left out.

    Exit status: 0 when at least one fits, 1 when none does, 2 when the question cannot be answered.
    """
    if (device_class is None) == (filename is None):
        raise typer.BadParameter("name a DeviceClass, or a file with -f", param_hint="CLASS")
    from app.cli.rooms import Question, answer
    from app.cli.source import Source

    question = Question(
        device_class=device_class or "",
        filename=filename,
        count=count,
        after_compaction=after_compaction,
        schedulers=tuple(scheduler or ()),
        limit=limit,
        output=output,
        source=Source(gates=feature_gates, kubeconfig=kubeconfig, context=context, file=source),
    )
    raise typer.Exit(asyncio.run(answer(question)))
