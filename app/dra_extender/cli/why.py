"""`dra-extender why`, or `explain`: why a pod does not run and what would help, asked of the cluster itself."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from dra_extender.cli import options
from dra_extender.cli.source import Source


@options.asks_cluster
def why(
    source: Source,
    pod: options.Pod = None,
    filename: options.PodFile = "",
    namespace: options.PodNamespace = "",
    everything: Annotated[bool, typer.Option("--all", help="all that was found, node by node")] = False,
    output: options.Output = "text",
    watch: options.Watch = False,
    node: options.Nodes = None,
    placement: Annotated[
        str, typer.Option(metavar="POLICY", help="as for serve: which node and devices this policy prefers, and why")
    ] = "",
    scheduler_names: options.SchedulerNames = "",
) -> None:
    """Why does my pod not run, and what helps?

    Decides as the service would. What is said to help was decided again with the change.

    Exit status: 0 when a node fits, 1 when none does, 2 when the question cannot be answered.
    """
    if (pod is None) == (not filename):
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from dra_extender.cli.answers.why import Question, answer

    question = Question(
        pod=pod or "",
        filename=filename,
        namespace=namespace,
        everything=everything,
        output=output,
        nodes=tuple(node or ()),
        placement=placement,
        scheduler_names=scheduler_names,
        watch=watch,
        source=source,
    )
    raise typer.Exit(asyncio.run(answer(question)))
