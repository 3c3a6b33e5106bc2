"""`dra-extender audit`: whether any device, counter or capacity is given away twice, asked of the cluster itself."""

from __future__ import annotations

import asyncio

import typer

from dra_extender.cli import options
from dra_extender.cli.source import Source


@options.asks_cluster
def audit(source: Source, output: options.Output = "text") -> None:
    """Is anything allocated twice?

    Lists every violation, whoever wrote the claims. A line names what is taken twice (driver/pool/device, or
    driver/pool for counters), the claims, and by how much.

    Exit status: 0 when there is none, 1 when there are some, 2 when the question cannot be answered.
    """
    from dra_extender.cli.answers.audit import answer

    raise typer.Exit(asyncio.run(answer(source, output)))
