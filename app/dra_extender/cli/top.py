"""`dra-extender top`: how full nodes, drivers, classes and namespaces are."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from dra_extender.cli import options
from dra_extender.cli.source import Source


@options.asks_cluster
def top(
    source: Source,
    by: Annotated[
        Literal["nodes", "drivers", "classes", "namespaces"], typer.Argument(help="what devices are added up by")
    ] = "nodes",
    node: options.Nodes = None,
    driver: options.Drivers = None,
    device_class: options.Classes = None,
    namespace: options.HoldersNamespace = "",
    output: options.Output = "text",
    watch: options.Watch = False,
) -> None:
    """How many devices are free, and how many in use?

    Added up by node, driver, class or namespace. FILL is the part of the devices that is taken: a device that one
    claim has counts whole, a shared one with its fullest capacity. States of which there are no devices are left
    out of the text.

    Exit status: 0 when something is listed, 1 when there are no devices, 2 when the question cannot be answered.
    """
    from dra_extender.cli.answers.devices import Question, add_up

    question = Question(
        nodes=tuple(node or ()),
        drivers=tuple(driver or ()),
        classes=tuple(device_class or ()),
        namespace=namespace,
        output=output,
        watch=watch,
        source=source,
    )
    raise typer.Exit(asyncio.run(add_up(question, by)))
