"""`dra-extender devices`: all devices of the cluster, in what state they are, and who holds them."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Literal

import typer


class DeviceState(StrEnum):
    """As `app.scheduling.census.report.State`, for the parser of the command line."""

    FREE = "free"
    SHARED = "shared"
    USED = "used"
    BLOCKED = "blocked"
    TAINTED = "tainted"
    UNUSABLE = "unusable"


def devices(
    node: Annotated[list[str] | None, typer.Option("--node", help="what this node sees; may be repeated")] = None,
    driver: Annotated[list[str] | None, typer.Option("--driver", help="of this driver; may be repeated")] = None,
    device_class: Annotated[
        list[str] | None, typer.Option("--class", help="that this DeviceClass selects; may be repeated")
    ] = None,
    state: Annotated[
        list[DeviceState] | None,
        typer.Option("--state", help="in this state; may be repeated"),
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="as --state free")] = False,
    held: Annotated[bool, typer.Option("--held", help="as --state used --state shared")] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="that claims of this namespace hold", show_default=False)
    ] = "",
    output: Annotated[
        Literal["text", "wide", "json", "yaml"], typer.Option("--output", "-o", help="how to say it")
    ] = "text",
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    source: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="a file that snapshot wrote", show_default=False),
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Which devices are there, which of them are free, and who holds the others? Reads the cluster once.

    `blocked`: nobody has the device, but others have taken counters that it needs. `unusable`: nothing is allocated of
    its pool, or of it with these feature gates. With `-o wide` also pools, classes, taints and counters.

    Exit status: 0 when devices are listed, 1 when there are none, 2 when the question cannot be answered.
    """
    from app.cli.counts import Question, list_devices
    from app.cli.source import Source

    question = Question(
        nodes=tuple(node or ()),
        drivers=tuple(driver or ()),
        classes=tuple(device_class or ()),
        states=(
            *(chosen.value for chosen in state or ()),
            *(("free",) if free else ()),
            *(("used", "shared") if held else ()),
        ),
        namespace=namespace,
        output=output,
        source=Source(gates=feature_gates, kubeconfig=kubeconfig, context=context, file=source),
    )
    raise typer.Exit(asyncio.run(list_devices(question)))
