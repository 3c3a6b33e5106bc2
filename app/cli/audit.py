"""`dra-extender audit`: whether any device, counter or capacity is given away twice, asked of the cluster itself."""

from __future__ import annotations

import asyncio

import typer

from app.cli import options
from app.cli.source import Source


@options.asks_cluster
def audit(source: Source, output: options.Output = "text") -> None:
    """Is anything allocated twice?

    Lists every violation, whoever wrote the claims. A line names what is taken twice (driver/pool/device, or
    driver/pool for counters), the claims, and by how much.

    Exit status: 0 when there is none, 1 when there are some, 2 when the question cannot be answered.
    """
    raise typer.Exit(asyncio.run(report(source, output)))


async def report(source: Source, output: options.Form = "text") -> int:
    """Print what was found. The exit status."""
    from app.cli.answers import Answer, answered
    from app.cli.asking import ask, complaining
    from app.cli.cluster import Snapshot
    from app.cli.columns import folded, terminal_width
    from app.cli.statuses import NO, YES
    from app.plurals import counted

    def answering(snapshot: Snapshot) -> Answer:
        ledger = snapshot.cluster.ledger
        found = ledger.violations()
        allocated = sum(1 for claim in ledger.claims() if claim.allocation is not None)

        def text() -> str:
            lines = (f"{each.kind} {each.subject}: {each.detail}; claims: {', '.join(each.claims)}" for each in found)
            total = f"{counted(allocated, 'allocated claim')}, {counted(len(found), 'violation')}"
            return folded("\n".join([*lines, total]), terminal_width())

        return answered(
            {"violations": found, "allocatedClaims": allocated},
            output,
            lambda: folded(text(), terminal_width()),
            NO if found else YES,
        )

    return await complaining(ask)(source, answering)
