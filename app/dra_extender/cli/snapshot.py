"""`dra-extender snapshot`: the cluster in one file, for questions that are asked later with `--from`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from dra_extender.cli.output import YES, note, status_of
from dra_extender.cli.questions import Context, Kubeconfig, Server, Source


def snapshot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to write; compressed if the name ends with .gz")],
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = "",
) -> None:
    """Write everything that scheduling decisions depend on to one file, to query it later.

    The file has nodes, ResourceSlices, DeviceClasses, ResourceClaims, DeviceTaintRules, unfinished pods,
    PodGroups, and PodDisruptionBudgets. `why POD --from FILE` answers from it.

    The file has no environment variables, commands or images of pods, and no opaque parameters of drivers.

    Exit status: 0 if the file was written, 2 if it could not be written.
    """
    source = Source(kubeconfig=kubeconfig, context=context, server=server)
    raise typer.Exit(asyncio.run(status_of(take(file, source))))


async def take(file: Path, source: Source) -> int:
    """Write the file. The exit status. Raises UnanswerableError."""
    from datetime import UTC, datetime

    from dra_extender.cli.answers.answer import unanswerable
    from dra_extender.cli.cluster import read
    from dra_extender.insight.snapshotfile import FORMAT, KIND, ClusterFile, dump
    from dra_extender.plaintext import counted
    from dra_extender.version import VERSION

    taken = datetime.now(UTC).isoformat(timespec="seconds")
    recording = ClusterFile(kind=KIND, format=FORMAT, made_by=f"dra-extender {VERSION}", taken=taken)
    with unanswerable():
        cluster = await read(source, evictions=True, recording=recording)
        data = dump(recording, compressed=file.suffix == ".gz")
        await asyncio.to_thread(file.write_bytes, data)
    note(cluster.problems)
    count = sum(map(len, recording.objects.values()))
    typer.echo(f"{file}: {counted(count, 'object')}, {counted(len(data), 'byte')}")
    return YES
