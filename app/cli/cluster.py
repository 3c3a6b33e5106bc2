"""The cluster that a command looks at: everything that decisions are made of, read once.

Promises: what `serve` would know at this moment, in the same `Cluster`, so that an answer given here is the one the
service would give. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from app.api.core import Pod
from app.api.decoding import DecodeError
from app.api.features import FeatureGates
from app.api.resource import ResourceSlice
from app.devices.cluster import Cluster
from app.kube.client import KubeClient
from app.kube.credentials import ClientSettings
from app.kube.discovery import Served, discover
from app.kube.resources import NODES, PODS, device_classes, device_taint_rules, resource_claims, resource_slices
from app.kube.snapshot import list_all
from app.version import VERSION

T = TypeVar("T")


class Snapshot(msgspec.Struct, frozen=True):
    """`problems` are objects that exist and cannot be understood."""

    cluster: Cluster
    pods: dict[str, Pod]
    """By namespace/name."""
    problems: tuple[DecodeError, ...]


async def read_cluster(kubeconfig: str, context: str, features: FeatureGates) -> Snapshot:
    """Read everything. Raises ApiError when the API server gives no answer, CredentialsError without its address."""

    async def read(client: KubeClient, served: Served) -> Snapshot:
        cluster, problems = Cluster(features), []
        kinds: list[Any] = [
            NODES,
            *(kind(served.version) for kind in (device_classes, resource_slices, resource_claims)),
        ]
        if served.taint_rules:
            kinds.append(device_taint_rules(served.taint_rules))
        for kind in kinds:
            objects, poisoned = await list_all(client, kind)
            problems.extend(poisoned)
            for obj in objects:
                cluster.apply(obj)
        pods, poisoned = await list_all(client, PODS)
        return Snapshot(cluster, {pod.metadata.key: pod for pod in pods}, (*problems, *poisoned))

    return await _ask(kubeconfig, context, read)


async def list_slices(kubeconfig: str, context: str) -> list[ResourceSlice]:
    """The published slices. Raises DecodeError for the first one that cannot be understood, and as `read_cluster`."""

    async def read(client: KubeClient, served: Served) -> list[ResourceSlice]:
        slices, problems = await list_all(client, resource_slices(served.version))
        if problems:
            raise problems[0]
        return slices

    return await _ask(kubeconfig, context, read)


async def _ask(kubeconfig: str, context: str, read: Callable[[KubeClient, Served], Awaitable[T]]) -> T:
    settings = ClientSettings(kubeconfig=kubeconfig, context=context, user_agent=f"kubectl-dra/{VERSION}")
    async with await KubeClient.connect(settings) as client:
        return await read(client, await discover(client))
