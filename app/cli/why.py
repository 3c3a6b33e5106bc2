"""`dra-extender why`, or `explain`: why a pod does not run and what would help, asked of the cluster itself."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer


def why(
    pod: Annotated[
        str | None, typer.Argument(help="the pod: NAME, pod/NAME or NAMESPACE/NAME", show_default=False)
    ] = None,
    filename: Annotated[
        str, typer.Option("--filename", "-f", help="pods of this file, before they are applied", show_default=False)
    ] = "",
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="namespace of the pod; else that of the context", show_default=False),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="all that was found, node by node")] = False,
    output: Annotated[Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="how to say it")] = "text",
    node: Annotated[list[str] | None, typer.Option("--node", help="only this node; may be repeated")] = None,
    placement: Annotated[
        str, typer.Option(help="as for serve: which node and devices this policy prefers, and why")
    ] = "",
    scheduler_names: Annotated[str, typer.Option(help="as for serve: the schedulers that call the service")] = "",
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    source: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="a file that snapshot wrote", show_default=False),
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Why does my pod not run, and what helps? Reads the cluster and decides as the service would; what is told to help
    was decided again with the change.

    Exit status: 0 when a node fits, 1 when none does, 2 when the question cannot be answered.
    """
    if (pod is None) == (not filename):
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from app.cli.diagnoses import Question, answer

    question = Question(
        pod=pod or "",
        filename=filename,
        namespace=namespace,
        everything=everything,
        output=output,
        nodes=tuple(node or ()),
        placement=placement,
        scheduler_names=scheduler_names,
        gates=feature_gates,
        kubeconfig=kubeconfig,
        context=context,
        file=source,
    )
    raise typer.Exit(asyncio.run(answer(question)))
