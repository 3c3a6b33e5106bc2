"""`dra-extender workload`: the pods of the cluster as a workload file, for `serve --placement-workload`."""

from __future__ import annotations

import asyncio

import typer

from app.cli import options
from app.cli.source import Source


@options.asks_cluster
def workload(source: Source) -> None:
    """Which kinds of pods with devices are there, and how many of each?

    Prints the YAML file that `serve --placement-workload` reads: pods that run or wait, the most frequent kind first.

    Exit status: 0 when it was printed, 1 when no pod uses devices, 2 when the question cannot be answered.
    """
    raise typer.Exit(asyncio.run(report(source)))


async def report(source: Source) -> int:
    """Print the file. The exit status."""
    from app.cli.answers import Answer
    from app.cli.asking import ask, complaining
    from app.cli.cluster import Snapshot
    from app.cli.statuses import NO, YES
    from app.scheduling.claims import Refusal, find
    from app.service import workloadfile

    def answering(snapshot: Snapshot) -> Answer:
        cluster = snapshot.cluster
        found = ((pod, find(pod, cluster.ledger.get, cluster.features)) for pod in snapshot.pods)
        kinds = workloadfile.seen((pod, claims) for pod, claims in found if not isinstance(claims, Refusal))
        if not kinds:
            return Answer("", NO, "no pod uses devices: there is nothing to write")
        return Answer(workloadfile.text(kinds).rstrip("\n"), YES)

    return await complaining(ask)(source, answering)
