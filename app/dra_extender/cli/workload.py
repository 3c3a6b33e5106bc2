"""`dra-extender workload`: the pods of the cluster as a workload file, for `serve --placement-workload`."""

from __future__ import annotations

import asyncio

import typer

from dra_extender.cli import options
from dra_extender.cli.source import Source


@options.asks_cluster
def workload(source: Source) -> None:
    """Which kinds of pods with devices are there, and how many of each?

    Prints the YAML file that `serve --placement-workload` reads: pods that run or wait, the most frequent kind first.

    Exit status: 0 when it was printed, 1 when no pod uses devices, 2 when the question cannot be answered.
    """
    from dra_extender.cli.answers.workload import answer

    raise typer.Exit(asyncio.run(answer(source)))
