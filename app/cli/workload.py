"""`dra-extender workload`: the pods of the cluster as a workload file, for `serve --placement-workload`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from app.cli.complaint import complain, note

WRITTEN, EMPTY, FAILED = 0, 1, 2


def workload(
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Which pods with devices are there, and how many of each kind? Prints the file that `serve --placement-workload`
    reads: kinds of pods that run or wait, the most frequent first.

    Exit status: 0 when it was printed, 1 when no pod uses devices, 2 when the question cannot be answered.
    """
    raise typer.Exit(asyncio.run(report(feature_gates, kubeconfig, context)))


async def report(gates: str, kubeconfig: str, context: str) -> int:
    """Print the file. The exit status."""
    from app.api.errors import ApiError
    from app.api.features import FeatureGates
    from app.cli.cluster import read_cluster
    from app.kube.credentials import CredentialsError
    from app.scheduling.claims import Refusal, find
    from app.service import workloadfile

    try:
        snapshot = await read_cluster(kubeconfig, context, FeatureGates.parse(gates))
    except (ApiError, CredentialsError, ValueError) as problem:
        complain(problem)
        return FAILED
    cluster = snapshot.cluster
    found = ((pod, find(pod, cluster.ledger.get, cluster.features)) for pod in snapshot.pods)
    kinds = workloadfile.seen((pod, claims) for pod, claims in found if not isinstance(claims, Refusal))
    note(cluster.problems)
    if not kinds:
        complain("no pod uses devices: there is nothing to write")
        return EMPTY
    typer.echo(workloadfile.text(kinds), nl=False)
    return WRITTEN
