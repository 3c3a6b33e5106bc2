"""`dra-extender snapshot`: the cluster in one file, for questions that are asked later with `--from`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from dra_extender.cli import options
from dra_extender.cli.complaint import complain, note
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import FAILED, YES


def snapshot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="where to; compressed when the name ends with .gz")],
    without_parameters: Annotated[
        bool, typer.Option("--without-parameters", help="leave out opaque parameters of drivers")
    ] = False,
    kubeconfig: options.Kubeconfig = "",
    context: options.Context = "",
    server: options.Server = "",
) -> None:
    """Write all that decisions are made of into one file, to ask it later.

    Nodes, slices, classes, claims, taint rules, pods that have not finished, and disruption budgets. `replay FILE why
    POD` and so on, or `why POD --from FILE`, answer from it.

    Of pods the file has what decisions read: no environment, no commands, no images.

    Exit status: 0 when it was written, 2 when it could not be.
    """
    source = Source(kubeconfig=kubeconfig, context=context, server=server)
    raise typer.Exit(asyncio.run(take(file, source, without_parameters=without_parameters)))


async def take(file: Path, source: Source, *, without_parameters: bool = False) -> int:
    """Write the file. The exit status."""
    from datetime import UTC, datetime

    from dra_extender.cli.answers.answer import UnanswerableError, judging
    from dra_extender.cli.cluster import read
    from dra_extender.cli.snapshotfile import Recording, dump
    from dra_extender.plurals import counted
    from dra_extender.version import VERSION

    recording = Recording()
    try:
        with judging():
            found = await read(source, evictions=True, recording=recording)
            data = dump(
                recording,
                made_by=f"dra-extender {VERSION}",
                taken=datetime.now(UTC).isoformat(timespec="seconds"),
                without_parameters=without_parameters,
                compressed=file.suffix == ".gz",
            )
            await asyncio.to_thread(file.write_bytes, data)
    except UnanswerableError as problem:
        complain(problem)
        return FAILED
    note(found.cluster.problems)
    count = sum(map(len, recording.objects.values()))
    typer.echo(f"{file}: {counted(count, 'object')}, {counted(len(data), 'byte')}")
    return YES
