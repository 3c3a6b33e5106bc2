"""Changes of the cluster, and whether they requeue refused pods."""

from __future__ import annotations

from typing import Any

from dra_extender.api.events import Applied, PartialAllocation, Removed, Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.devices.cluster import Cluster


def put(cluster: Cluster, obj: Any) -> bool:
    return cluster.apply(Applied(obj)).requeue


def drop(cluster: Cluster, obj: Any) -> bool:
    return cluster.apply(Removed.of(obj)).requeue


def spoil(cluster: Cluster, kind: str, name: str, problem: str, partial: PartialAllocation | None = None) -> bool:
    return cluster.apply(Undecodable(ObjectKey(kind, name), problem, partial)).requeue
