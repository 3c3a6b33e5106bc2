"""`dra-extender whatif`: who would fit, and who would not any more, after changes that nobody has made."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer


def whatif(
    pod: Annotated[
        str | None,
        typer.Argument(help="NAME, pod/NAME or NAMESPACE/NAME; else all that wait for devices", show_default=False),
    ] = None,
    filename: Annotated[
        str, typer.Option("--filename", "-f", help="pods of this file, before they are applied", show_default=False)
    ] = "",
    add_node: Annotated[
        list[str] | None,
        typer.Option("--add-node", metavar="like=NODE,count=N", help="more nodes like this one; may be repeated"),
    ] = None,
    without_pod: Annotated[
        list[str] | None, typer.Option("--without-pod", help="as if this pod were gone; may be repeated")
    ] = None,
    drain: Annotated[
        list[str] | None, typer.Option("--drain", help="as if this node were drained; may be repeated")
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="namespace of pods; else that of the context", show_default=False)
    ] = "",
    output: Annotated[Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="how to say it")] = "text",
    scheduler_names: Annotated[str, typer.Option(help="as for serve: the schedulers that call the service")] = "",
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="a file that snapshot wrote", show_default=False)
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """What if there were more nodes, pods were gone, or nodes drained? Reads the cluster, changes nothing, and places
    pods one after the other: those that would lose their node, then the one that is named, or all that wait.

    Exit status: 0 when all of them would fit, 1 when some would not, 2 when the question cannot be answered.
    """
    if pod is not None and filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from app.cli.source import Source
    from app.cli.suppositions import Question, answer

    question = Question(
        pod=pod or "",
        filename=filename,
        added=tuple(add_node or ()),
        without=tuple(without_pod or ()),
        drained=tuple(drain or ()),
        namespace=namespace,
        output=output,
        scheduler_names=scheduler_names,
        source=Source(gates=feature_gates, kubeconfig=kubeconfig, context=context, file=source),
    )
    raise typer.Exit(asyncio.run(answer(question)))
