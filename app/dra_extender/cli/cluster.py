"""The state that a command reads: everything that decisions depend on, listed once, or read from a snapshot file.

Promises: the state that `serve` would have at this moment, in the same `Cluster`, so a command answers as the service
would. It writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.errors import FORBIDDEN, ApiError
from dra_extender.api.events import ClusterEvent, Undecodable
from dra_extender.api.features import FeatureGates, release_of
from dra_extender.api.meta import ObjectKey
from dra_extender.cli.questions import Source
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.snapshotfile import ClusterFile, load
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.reflector import UNFINISHED_PODS
from dra_extender.kube.resources import (
    POD_GROUPS,
    PODS,
    Resource,
    Served,
    discover,
    list_pages,
    watched_kinds,
)
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.handle import SystemClock
from dra_extender.scheduling.view import View
from dra_extender.version import VERSION


def view_of(cluster: Cluster, schedulers: frozenset[str] = frozenset()) -> View:
    """For decisions without a running bind. `schedulers`: they call the service; empty if not known."""
    clock, config = SystemClock(), SchedulingConfig(scheduler_names=schedulers)
    return View(
        cluster=cluster,
        decisions=Decisions(cluster, share_ids=lambda: str(uuid.uuid4())),
        pods=cluster.pods,
        clock=clock,
        config=config,
        resources=ResourceNames(cluster.classes, clock, config),
    )


async def read(
    source: Source, *, evictions: bool = False, only: str = "", recording: ClusterFile | None = None
) -> Cluster:
    """List everything, except optional kinds that the user may not list. `evictions`: also PodDisruptionBudgets.
    `only`: the plural of the only kind to list. `recording`: gets the objects of a cluster. Raises ApiError when the
    API server gives no answer, CredentialsError without its address, and ValueError for a file that cannot be used.
    """
    if source.from_file:
        file = stored(source)
        return _restored(file, FeatureGates.parse(source.feature_gates, release_of(file.kubernetes)))
    async with client_of(source) as client:
        served = await discover(client)
        cluster = Cluster(FeatureGates.parse(source.feature_gates, release_of(served.server_version)))
        for kind in watched_kinds(served, budgets=evictions):
            if only not in ("", kind.plural):
                continue
            known = _known(kind, cluster, recording)
            try:
                async for page in list_pages(client, kind, UNFINISHED_PODS if kind.plural == PODS.plural else {}):
                    known.listed(page.items or [])
                    known.report()
            except ApiError as problem:
                if not kind.optional or problem.status != FORBIDDEN:
                    raise
        if recording is not None:
            recording.kubernetes = served.server_version
        return cluster


def stored(source: Source) -> ClusterFile:
    """What is in the file. Raises ValueError."""
    if source.kubeconfig or source.context or source.server:
        raise ValueError("--from is a file; --kubeconfig, --context and --server name a cluster: give one of them")
    try:
        return load(Path(source.from_file).read_bytes())
    except OSError as problem:
        raise ValueError(f"{source.from_file}: {problem.strerror}") from None
    except ValueError as problem:
        raise ValueError(f"{source.from_file}: {problem}") from None


@asynccontextmanager
async def client_of(source: Source, *, forwards_token: bool = False) -> AsyncIterator[KubeClient]:
    """A client. Raises CredentialsError."""
    settings = ClientSettings(
        server=source.server,
        kubeconfig=source.kubeconfig,
        context=source.context,
        user_agent=f"kubectl-dra/{VERSION}",
        forwards_token=forwards_token,
    )
    async with await KubeClient.connect(settings) as client:
        yield client


def _restored(file: ClusterFile, features: FeatureGates) -> Cluster:
    """The cluster as it was when the file was written."""
    cluster = Cluster(features)
    for kind in watched_kinds(Served(taint_rules="v1", pod_groups=POD_GROUPS), budgets=True):
        known = _known(kind, cluster)
        known.listed(file.objects.get(section(kind), []))
        known.report()
    for found in file.unreadable:
        cluster.apply(Undecodable(ObjectKey(found.kind, found.name), found.problem, found.partial))
    return cluster


def _known(kind: Resource[Any], cluster: Cluster, recording: ClusterFile | None = None) -> KnownObjects[Any]:
    """Applies lists of the kind to the cluster, and undecodable objects as the service does."""

    def apply(event: ClusterEvent) -> None:
        if recording is not None:
            recording.add(section(kind), event)
        cluster.apply(event)

    return KnownObjects(kind, apply)


def section(kind: Resource[Any]) -> str:
    """Where the objects of the kind are in a file. PodGroups of both API groups have the same plural."""
    return f"{kind.plural}.{kind.group}" if kind.optional else kind.plural
