"""ReplicaSets: the wanted number of pods, made from the template; pods that end or are deleted are replaced.

Rules: Kubernetes 1.36, pkg/controller/replicaset, without the ranking of pods by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from embedded_cluster.controllers.podowners import PodController
from embedded_cluster.controllers.podrules import active, deletion_order, pod_of
from embedded_cluster.objects import FullPod, ReplicaSet


class Plan(msgspec.Struct, frozen=True):
    """How many pods to make, and which to delete."""

    create: int
    delete: tuple[FullPod, ...]


def plan(owner: ReplicaSet, pods: Sequence[FullPod]) -> Plan:
    """Compare wanted with existing pods; in a surplus those go that are worth least."""
    alive = active(pods)
    surplus = len(alive) - owner.spec.replicas
    if surplus <= 0:
        return Plan(-surplus, ())
    return Plan(0, tuple(sorted(alive, key=deletion_order)[:surplus]))


def replica(owner: ReplicaSet) -> dict[str, Any]:
    """One pod of the set, ready to be encoded."""
    template = owner.spec.template
    metadata = {"labels": dict(template.metadata.labels), "annotations": dict(template.metadata.annotations)}
    return pod_of("ReplicaSet", owner.metadata, {"metadata": metadata, "spec": template.spec})


def status(owner: ReplicaSet, pods: Sequence[FullPod]) -> dict[str, Any]:
    """The status of the set for these pods."""
    alive = active(pods)
    ready = sum(1 for pod in alive if pod.status.phase == "Running")
    return {
        "observedGeneration": owner.metadata.generation,
        "replicas": len(alive),
        "fullyLabeledReplicas": len(alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }


class ReplicaController(PodController[ReplicaSet]):
    """Keeps ReplicaSets at their number of pods."""

    kind = "ReplicaSet"

    async def sync(self, owner: ReplicaSet) -> None:
        todo = plan(owner, self.pods_of(owner))
        for _ in range(todo.create):
            await self.create(owner, replica(owner))
        for pod in todo.delete:
            await self.delete(pod)
        await self.report(owner, status(owner, self.pods_of(owner)))
