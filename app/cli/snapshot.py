"""`dra-extender snapshot`: the cluster in one file, for questions that are asked later with `--from`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.cli.complaint import complain, note

WRITTEN, FAILED = 0, 2


def snapshot(
    file: Annotated[Path, typer.Argument(help="where to; compressed when the name ends with .gz")],
    without_parameters: Annotated[
        bool, typer.Option("--without-parameters", help="leave out opaque parameters of drivers")
    ] = False,
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Write everything that decisions are made of into one file: nodes, slices, classes, claims, taint rules, pods that
    have not finished and disruption budgets. `why`, `devices`, `top`, `headroom`, `whatif` and `compact` answer from it
    with `--from FILE`.

    Of pods the file has what decisions read: no environment, no commands, no images.

    Exit status: 0 when it was written, 2 when it could not be.
    """
    raise typer.Exit(asyncio.run(take(file, kubeconfig, context, without_parameters=without_parameters)))


async def take(file: Path, kubeconfig: str, context: str, *, without_parameters: bool = False) -> int:
    """Write the file. The exit status."""
    from datetime import UTC, datetime

    from app.api.errors import ApiError
    from app.api.features import FeatureGates
    from app.cli.cluster import read_cluster
    from app.cli.snapshotfile import Recording, dump
    from app.kube.credentials import CredentialsError
    from app.plurals import counted
    from app.version import VERSION

    recording = Recording()
    try:
        read = await read_cluster(kubeconfig, context, FeatureGates(), evictions=True, recording=recording)
        data = dump(
            recording,
            made_by=f"dra-extender {VERSION}",
            taken=datetime.now(UTC).isoformat(timespec="seconds"),
            without_parameters=without_parameters,
            compressed=file.suffix == ".gz",
        )
        await asyncio.to_thread(file.write_bytes, data)
    except (ApiError, CredentialsError, OSError, ValueError) as problem:
        complain(problem)
        return FAILED
    note(read.cluster.problems)
    count = sum(map(len, recording.objects.values()))
    typer.echo(f"{file}: {counted(count, 'object')}, {counted(len(data), 'byte')}")
    return WRITTEN
