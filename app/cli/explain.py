"""`dra-extender explain`: why a pod does not fit, asked of the cluster itself."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from app.cli.complaint import complain, note

PLACEABLE, REFUSED, FAILED = 0, 1, 2


def explain(
    pod: Annotated[str, typer.Argument(help="the pod: NAME or NAMESPACE/NAME")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="namespace of the pod")] = "default",
    node: Annotated[list[str] | None, typer.Option("--node", help="only this node; may be repeated")] = None,
    placement: Annotated[
        str, typer.Option(help="as for serve: which node and devices this policy prefers, and why")
    ] = "",
    feature_gates: Annotated[str, typer.Option(help="as for serve: Name=true,Other=false")] = "",
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Why does my pod not fit? Reads the cluster, decides as the service would, and reports what each rule took away.

    Exit status: 0 when a node fits, 1 when none does, 2 when the question cannot be answered.
    """
    key = pod if "/" in pod else f"{namespace}/{pod}"
    raise typer.Exit(asyncio.run(report(key, node or [], feature_gates, kubeconfig, context, placement)))


async def report(key: str, nodes: list[str], gates: str, kubeconfig: str, context: str, placement: str = "") -> int:
    """Print the answer for the pod `namespace/name`. The exit status."""
    from app.api.errors import ApiError
    from app.api.features import FeatureGates
    from app.cli.cluster import read_cluster
    from app.kube.credentials import CredentialsError
    from app.placement.policies import POLICIES
    from app.scheduling.verbs.explain import explain_pod

    policy = next((name for name in POLICIES if name == (placement or POLICIES[0])), None)
    if policy is None:
        return _fail(f"--placement {placement} is none of {', '.join(POLICIES)}")
    try:
        snapshot = await read_cluster(kubeconfig, context, FeatureGates.parse(gates))
    except (ApiError, CredentialsError, ValueError) as problem:
        return _fail(problem)
    namespace, _, name = key.partition("/")
    pod = snapshot.pods.named(namespace, name)
    if pod is None:
        absent = f"pod {key} is not known: it does not exist, or has finished"
        return _fail(f"{absent}; the argument is NAME with -n NAMESPACE, or NAMESPACE/NAME")
    known = snapshot.cluster.nodes
    for node in nodes:
        if node not in known:
            return _fail(f"node {node} is not known")
    found = explain_pod(snapshot.view(policy), pod, sorted(set(nodes) if nodes else known))
    typer.echo(found.text())
    note(snapshot.cluster.problems)
    return FAILED if found.error else PLACEABLE if found.fits else REFUSED


def _fail(problem: object) -> int:
    complain(problem)
    return FAILED
