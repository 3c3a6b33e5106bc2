"""`dra-extender headroom`: how many more pods of a kind fit."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from dra_extender.cli import names, options
from dra_extender.cli.source import Source

MOST: Final = 2_000


@options.asks_cluster
def headroom(
    source: Source,
    device_class: Annotated[
        str | None,
        typer.Argument(
            metavar="CLASS",
            help="the DeviceClass of the pods' devices",
            show_default=False,
            autocompletion=names.classes,
        ),
    ] = None,
    filename: options.ClaimFile = "",
    count: Annotated[int, typer.Option(metavar="COUNT", min=1, help="devices of the class that each pod wants")] = 1,
    after_compaction: Annotated[
        bool, typer.Option("--after-compaction", help="also after the moves that compact advises")
    ] = False,
    scheduler: options.MovedSchedulers = None,
    limit: Annotated[int, typer.Option(metavar="COUNT", min=1, help="decisions that are made at most")] = MOST,
    output: options.Output = "text",
    watch: options.Watch = False,
) -> None:
    """How many more pods with devices of this class, or with these claims, fit?

    Decides as the service would, one pod after the other. Looks at devices alone: not at CPU, memory and taints of
    nodes. Cordoned nodes are left out.

    Exit status: 0 when at least one fits, 1 when none does, 2 when the question cannot be answered.
    """
    if (device_class is None) == (not filename):
        raise typer.BadParameter("name a DeviceClass, or a file with -f", param_hint="CLASS")
    from dra_extender.cli.answers.headroom import Question, answer

    question = Question(
        device_class=device_class or "",
        filename=filename,
        count=count,
        after_compaction=after_compaction,
        schedulers=tuple(scheduler or ()),
        limit=limit,
        output=output,
        watch=watch,
        source=source,
    )
    raise typer.Exit(asyncio.run(answer(question)))
