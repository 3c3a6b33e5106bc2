"""`dra-extender devices`: all devices of the cluster, in what state they are, and who holds them."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from dra_extender.cli import options
from dra_extender.cli.source import Source


class DeviceState(StrEnum):
    """As `dra_extender.insight.devicereport.report.State`, for the parser of the command line."""

    FREE = "free"
    SHARED = "shared"
    USED = "used"
    BLOCKED = "blocked"
    TAINTED = "tainted"
    UNUSABLE = "unusable"


@options.asks_cluster
def devices(
    source: Source,
    node: options.Nodes = None,
    driver: options.Drivers = None,
    device_class: options.Classes = None,
    state: Annotated[
        list[DeviceState] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="only those that are free, shared, used, blocked, tainted or unusable; may be repeated",
        ),
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="as --state free")] = False,
    held: Annotated[bool, typer.Option("--held", help="as --state used --state shared")] = False,
    namespace: options.HoldersNamespace = "",
    output: options.WideOutput = "text",
    watch: options.Watch = False,
) -> None:
    """Which devices are there, which of them are free, and who holds the others?

    `blocked`: nobody has the device, but others have taken counters that it needs. `unusable`: nothing is allocated of
    its pool, or of it with these feature gates. With `-o wide` also pools, classes, taints and counters.

    Exit status: 0 when devices are listed, 1 when there are none, 2 when the question cannot be answered.
    """
    from dra_extender.cli.answers.devices import Question, list_devices

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
        watch=watch,
        source=source,
    )
    raise typer.Exit(asyncio.run(list_devices(question)))
