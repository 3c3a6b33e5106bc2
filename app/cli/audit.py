"""`dra-extender audit`: whether any device, counter or capacity is given away twice, asked of the cluster itself."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from app.cli.complaint import complain, note

CLEAN, VIOLATED, FAILED = 0, 1, 2


def audit(
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Is anything allocated twice? Reads the cluster once and lists every violation, whoever wrote the claims.

    A line names what is taken twice (driver/pool/device, or driver/pool for counters), the claims, and by how much.
    Exit status: 0 when there is none, 1 when there are some, 2 when the question cannot be answered.
    """
    raise typer.Exit(asyncio.run(report(feature_gates, kubeconfig, context)))


async def report(gates: str, kubeconfig: str, context: str) -> int:
    """Print what was found. The exit status."""
    from app.api.errors import ApiError
    from app.api.features import FeatureGates
    from app.cli.cluster import read_cluster
    from app.kube.credentials import CredentialsError
    from app.plurals import counted

    try:
        snapshot = await read_cluster(kubeconfig, context, FeatureGates.parse(gates))
    except (ApiError, CredentialsError, ValueError) as problem:
        complain(problem)
        return FAILED
    ledger = snapshot.cluster.ledger
    found = ledger.violations()
    for violation in found:
        claims = ", ".join(violation.claims)
        typer.echo(f"{violation.kind} {violation.subject}: {violation.detail}; claims: {claims}")
    note(snapshot.cluster.problems)
    allocated = sum(1 for claim in ledger.claims() if claim.allocation is not None)
    typer.echo(f"{counted(allocated, 'allocated claim')}, {counted(len(found), 'violation')}")
    return VIOLATED if found else CLEAN
