"""`dra-extender compact`: which pods could be evicted, and would fit elsewhere, to make room. It evicts nobody."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from dra_extender.cli import options
from dra_extender.cli.source import Source


@options.asks_cluster
def compact(
    source: Source,
    pod: options.Pod = None,
    filename: options.ClaimFile = "",
    namespace: options.PodNamespace = "",
    scheduler: options.MovedSchedulers = None,
    all_schedulers: Annotated[
        bool, typer.Option("--all-schedulers", help="the pods of everybody may be moved")
    ] = False,
    output: options.Output = "text",
) -> None:
    """Which pods to evict so that a pending pod, or a claim, fits?

    Without either: so that most devices are whole. Decides as the service would, move by move, in the order of the
    list. It never evicts. Without --scheduler-name only pods of the pending pod's own scheduler may be moved, else
    those of dra-scheduler.

    Exit status: 0 when there is a way, 1 when no moves help, 2 when the question cannot be answered.
    """
    if pod is not None and filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from dra_extender.cli.answers.compact import Question, answer

    question = Question(
        pod=pod or "",
        filename=filename,
        namespace=namespace,
        schedulers=None if all_schedulers else tuple(scheduler or ()),
        output=output,
        source=source,
    )
    raise typer.Exit(asyncio.run(answer(question)))
