"""`dra-extender whatif`: who would fit, and who would not any more, after changes that nobody has made."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from dra_extender.cli import names, options
from dra_extender.cli.source import Source


@options.asks_cluster
def whatif(
    source: Source,
    pod: Annotated[
        str | None,
        typer.Argument(
            help="NAME, pod/NAME or NAMESPACE/NAME; else all that wait for devices", show_default=False,
            autocompletion=names.pods,
        ),
    ] = None,
    filename: options.PodFile = "",
    add_node: Annotated[
        list[str] | None,
        typer.Option(
            "--add-node", metavar="like=NODE,count=N", help="more nodes like this one; may be repeated",
            autocompletion=names.like_nodes,
        ),
    ] = None,
    without_pod: Annotated[
        list[str] | None,
        typer.Option(
            "--without-pod", metavar="POD", help="as if this pod were gone; may be repeated",
            autocompletion=names.pods,
        ),
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option(
            "--drain", metavar="NODE", help="as if this node were drained; may be repeated",
            autocompletion=names.nodes,
        ),
    ] = None,
    supposed: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="FILE", help="as if slices, classes and claims of this file were there; may be repeated"
        ),
    ] = None,
    toleration: Annotated[
        list[str] | None,
        typer.Option(
            "--toleration", metavar="KEY[=VALUE][:EFFECT]",
            help="as if pods and their claims tolerated this taint; may be repeated",
        ),
    ] = None,
    namespace: options.PodNamespace = "",
    output: options.Output = "text",
    scheduler_names: options.SchedulerNames = "",
) -> None:  # fmt: skip
    """Who would fit, and who no more, with other nodes or devices, or without some pods?

    Changes nothing. Pods are placed one after the other: those that would lose their node, then the one that is named,
    or all that wait.

    Exit status: 0 when all of them would fit, 1 when some would not, 2 when the question cannot be answered.
    """
    if pod is not None and filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from dra_extender.cli.answers.whatif import Question, answer

    question = Question(
        pod=pod or "",
        filename=filename,
        added=tuple(add_node or ()),
        without=tuple(without_pod or ()),
        drained=tuple(drain or ()),
        supposed=tuple(supposed or ()),
        tolerations=tuple(toleration or ()),
        namespace=namespace,
        output=output,
        scheduler_names=scheduler_names,
        source=source,
    )
    raise typer.Exit(asyncio.run(answer(question)))
