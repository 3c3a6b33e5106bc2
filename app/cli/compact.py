"""`dra-extender compact`: which pods could be evicted, and would fit elsewhere, to make room. It evicts nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli.complaint import complain, note

ADVISED, IN_VAIN, FAILED = 0, 1, 2
SCHEDULER: Final = "dra-scheduler"
"""Whose pods may be moved, where nobody says otherwise."""


def compact(
    pod: Annotated[str, typer.Argument(help="the pending pod: NAME or NAMESPACE/NAME")] = "",
    file: Annotated[
        Path | None, typer.Option("--filename", "-f", help="a ResourceClaim or its template, instead of a pod")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="namespace of the pod")] = "default",
    scheduler: Annotated[
        list[str] | None,
        typer.Option("--scheduler-name", help=f"whose pods may be moved [default: the pod's own, or {SCHEDULER}]"),
    ] = None,
    all_schedulers: Annotated[
        bool, typer.Option("--all-schedulers", help="the pods of everybody may be moved")
    ] = False,
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    source: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="a file that snapshot wrote", show_default=False),
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Which pods to evict so that a pending pod fits, or a claim; without either, so that most devices are whole.

    Reads the cluster and decides as the service would, move by move, in the order of the list. It never evicts.

    Exit status: 0 when there is a way, 1 when no moves help, 2 when the question cannot be answered.
    """
    key = pod if "/" in pod or not pod else f"{namespace}/{pod}"
    schedulers = None if all_schedulers else scheduler or []
    raise typer.Exit(asyncio.run(report(key, file, schedulers, feature_gates, kubeconfig, context, source)))


async def report(
    key: str,
    file: Path | None,
    schedulers: list[str] | None,
    gates: str,
    kubeconfig: str,
    context: str,
    source: str = "",
) -> int:
    """Print the advice. `schedulers`: None for everybody, nobody for the default. `source`: what `snapshot` wrote. The
    exit status.
    """
    from app.api.errors import ApiError
    from app.cli import wishes
    from app.cli.source import Source
    from app.kube.credentials import CredentialsError
    from app.scheduling.compaction.compaction import Compaction
    from app.scheduling.compaction.movable import Rules

    try:
        if key and file is not None:
            raise ValueError("a pod and --filename are two questions: ask one of them")
        snapshot = await Source(gates=gates, kubeconfig=kubeconfig, context=context, file=source).read(evictions=True)
        view = snapshot.view()
        wish = wishes.of_pod(view, key) if key else wishes.of_file(view, file) if file is not None else None
        own = wish.pod.spec.scheduler_name if wish is not None and wish.pod is not None else ""
        names = frozenset() if schedulers is None else frozenset(schedulers or [own or SCHEDULER])
        compaction = Compaction(view, Rules(names, snapshot.budgets))
        advice = compaction.room_for(wish) if wish is not None else compaction.whole_devices()
    except (ApiError, CredentialsError, ValueError) as problem:
        complain(problem)
        return FAILED
    typer.echo(advice.text())
    note(snapshot.cluster.problems)
    return ADVISED if advice.helps else IN_VAIN
