"""`dra-extender top`: how full nodes, drivers, classes and namespaces are."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer


def top(
    by: Annotated[
        Literal["nodes", "drivers", "classes", "namespaces"], typer.Argument(help="whose devices are added up")
    ] = "nodes",
    node: Annotated[list[str] | None, typer.Option("--node", help="what this node sees; may be repeated")] = None,
    driver: Annotated[list[str] | None, typer.Option("--driver", help="of this driver; may be repeated")] = None,
    device_class: Annotated[
        list[str] | None, typer.Option("--class", help="that this DeviceClass selects; may be repeated")
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="that claims of this namespace hold", show_default=False)
    ] = "",
    output: Annotated[Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="how to say it")] = "text",
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    source: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="a file that snapshot wrote", show_default=False),
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """How many devices are free, and how many in use? Added up by node, driver, class or namespace. Reads the cluster
    once.

    FILL is the part of the devices that is taken: a device that one claim has counts whole, a shared one with its
    fullest capacity. States of which there are no devices are left out of the text.

    Exit status: 0 when something is listed, 1 when there are no devices, 2 when the question cannot be answered.
    """
    from app.cli.counts import Question, add_up
    from app.cli.source import Source

    question = Question(
        nodes=tuple(node or ()),
        drivers=tuple(driver or ()),
        classes=tuple(device_class or ()),
        namespace=namespace,
        output=output,
        source=Source(gates=feature_gates, kubeconfig=kubeconfig, context=context, file=source),
    )
    raise typer.Exit(asyncio.run(add_up(question, by)))
