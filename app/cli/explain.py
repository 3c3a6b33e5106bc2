"""`dra-extender explain`: why a pod does not fit, asked of the cluster itself."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated

import typer

PLACEABLE, REFUSED, FAILED = 0, 1, 2


class _Now:
    """The clock of a command that asks once."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)


def explain(
    pod: Annotated[str, typer.Argument(help="the pod: NAME or NAMESPACE/NAME")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="namespace of the pod")] = "default",
    node: Annotated[list[str] | None, typer.Option("--node", help="only this node; may be repeated")] = None,
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Why does my pod not fit? Reads the cluster, decides as the service would, and reports what each rule took away.

    Exit status: 0 when a node fits, 1 when none does, 2 when the question cannot be answered.
    """
    key = pod if "/" in pod else f"{namespace}/{pod}"
    raise typer.Exit(asyncio.run(_explain(key, node or [], feature_gates, kubeconfig, context)))


async def _explain(key: str, nodes: list[str], gates: str, kubeconfig: str, context: str) -> int:
    from app.allocation.decisions import Decisions
    from app.api.errors import ApiError
    from app.api.features import FeatureGates
    from app.cli.cluster import read_cluster
    from app.kube.credentials import CredentialsError
    from app.scheduling.verbs.explain import explain_pod, offline_view

    try:
        snapshot = await read_cluster(kubeconfig, context, FeatureGates.parse(gates))
    except (ApiError, CredentialsError, ValueError) as problem:
        return _fail(str(problem))
    pod = snapshot.pods.get(key)
    if pod is None:
        return _fail(f"there is no pod {key}; the argument is NAME with -n NAMESPACE, or NAMESPACE/NAME")
    decisions = Decisions(snapshot.cluster, share_ids=lambda: str(uuid.uuid4()))
    names = nodes or sorted(snapshot.cluster.nodes)
    found = explain_pod(offline_view(snapshot.cluster, decisions, _Now()), pod, names)
    typer.echo(found.text())
    for unreadable in snapshot.problems:
        typer.secho(f"left out: {unreadable}", err=True, fg=typer.colors.YELLOW)
    for note in snapshot.cluster.problems:
        typer.secho(f"note: {note.object}: {note.what}: {note.advice}", err=True, fg=typer.colors.YELLOW)
    return FAILED if found.error else PLACEABLE if found.fits else REFUSED


def _fail(problem: str) -> int:
    typer.secho(f"dra-extender: {problem}", err=True, fg=typer.colors.RED)
    return FAILED
