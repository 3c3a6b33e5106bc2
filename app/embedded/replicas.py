"""ReplicaSets: the wanted number of pods, made from the template; pods that end or are deleted are replaced.

Rules: Kubernetes 1.36, pkg/controller/replicaset, without the ranking of pods by node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from app.api.decoding import encode
from app.api.errors import ConflictError, NotFoundError
from app.embedded.informer import Informer
from app.embedded.objects import FullPod, ReplicaSet, controlled_by
from app.embedded.workqueue import WorkQueue
from app.kube.client import KubeClient


class Plan(msgspec.Struct, frozen=True):
    """How many pods to make, and which to delete."""

    create: int
    delete: tuple[FullPod, ...]


def plan(owner: ReplicaSet, pods: Sequence[FullPod]) -> Plan:
    """Compare wanted with existing pods; those that are worth least go first: not bound, then not running, newest."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None and not pod.finished]
    surplus = len(alive) - owner.spec.replicas
    if surplus <= 0:
        return Plan(-surplus, ())
    worth = sorted(
        alive,
        key=lambda pod: (bool(pod.spec.node_name), pod.status.phase == "Running", -pod.metadata.version),
    )
    return Plan(0, tuple(worth[:surplus]))


def replica(owner: ReplicaSet) -> dict[str, Any]:
    """One pod of the set, ready to be encoded."""
    template = owner.spec.template
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{owner.metadata.name}-",
            "namespace": owner.metadata.namespace,
            "labels": dict(template.metadata.labels),
            "annotations": dict(template.metadata.annotations),
            "ownerReferences": [controlled_by("ReplicaSet", owner.metadata)],
        },
        "spec": template.spec,
    }


def status(owner: ReplicaSet, pods: Sequence[FullPod]) -> dict[str, Any]:
    """The status of the set for these pods."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None and not pod.finished]
    ready = sum(1 for pod in alive if pod.status.phase == "Running")
    return {
        "observedGeneration": owner.metadata.generation,
        "replicas": len(alive),
        "fullyLabeledReplicas": len(alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }


class ReplicaController:
    """Keeps ReplicaSets at their number of pods. `run` never returns."""

    def __init__(self, client: KubeClient, sets: Informer[ReplicaSet], pods: Informer[FullPod]) -> None:
        """`pods` must have the index "owner"."""
        self._client = client
        self._sets = sets
        self._pods = pods
        self._reported: dict[str, dict[str, Any]] = {}
        self.queue = WorkQueue("replicaset", self._sync)
        sets.subscribe(self._set_changed)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._sets.synced.wait(), self._pods.synced.wait())
        await self.queue.run()

    def _set_changed(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.key)
        elif old is not None:
            self._reported.pop(old.metadata.uid, None)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        owner = pod.metadata.controller if pod is not None else None
        if pod is not None and owner is not None and owner.kind == "ReplicaSet":
            self.queue.add(f"{pod.metadata.namespace}/{owner.name}")

    async def _sync(self, key: str) -> None:
        owner = self._sets.objects.get(key)
        if owner is None or owner.metadata.deletion_timestamp is not None:
            return
        todo = plan(owner, self._pods.find("owner", owner.metadata.uid))
        resource = self._pods.resource
        for _ in range(todo.create):
            reply = await self._client.create(resource.path(owner.metadata.namespace), encode(replica(owner)))
            self._pods.observe(resource.decode(reply))
        for pod in todo.delete:
            await self._delete(pod)
        await self._report(owner)

    async def _delete(self, pod: FullPod) -> None:
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}}))
        except (NotFoundError, ConflictError):
            return

    async def _report(self, owner: ReplicaSet) -> None:
        wanted = status(owner, self._pods.find("owner", owner.metadata.uid))
        if self._reported.get(owner.metadata.uid) == wanted:
            return
        path = self._sets.resource.path(owner.metadata.namespace, owner.metadata.name, "status")
        try:
            await self._client.patch(path, encode({"metadata": {"uid": owner.metadata.uid}, "status": wanted}))
        except NotFoundError:
            return
        self._reported[owner.metadata.uid] = wanted
