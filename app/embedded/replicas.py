"""Deployments, as far as sets of equal pods need them: the wanted number of pods, made from the template.

Without ReplicaSets and rolling updates: pods belong to the Deployment itself, and a changed template applies to pods
that are made from then on. Pods that end or are deleted are replaced.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.api.decoding import encode
from app.api.errors import ConflictError, NotFoundError
from app.api.times import format_time
from app.embedded.informer import Informer
from app.embedded.objects import Deployment, FullPod
from app.embedded.workqueue import WorkQueue
from app.kube.client import KubeClient

HASH_LABEL = "pod-template-hash"


class Plan(msgspec.Struct, frozen=True):
    """How many pods to make, and which to delete."""

    create: int
    delete: tuple[FullPod, ...]


def plan(deployment: Deployment, pods: Sequence[FullPod]) -> Plan:
    """Compare wanted with existing pods; those that are worth least go first: not bound, then not running, newest."""
    alive = [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")
    ]
    surplus = len(alive) - deployment.spec.replicas
    if surplus <= 0:
        return Plan(-surplus, ())
    worth = sorted(
        alive,
        key=lambda pod: (bool(pod.spec.node_name), pod.status.phase == "Running", -pod.metadata.version),
    )
    return Plan(0, tuple(worth[:surplus]))


def replica(deployment: Deployment) -> dict[str, Any]:
    """One pod of the set, ready to be encoded."""
    template = deployment.spec.template
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment.metadata.name,
        "uid": deployment.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    # The hash names what the pods were made from, as the one of a ReplicaSet does.
    mark = hashlib.sha256(bytes(template.spec)).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{deployment.metadata.name}-{mark}-",
            "namespace": deployment.metadata.namespace,
            "labels": template.metadata.labels | {HASH_LABEL: mark},
            "annotations": dict(template.metadata.annotations),
            "ownerReferences": [owner],
        },
        "spec": template.spec,
    }


def status(deployment: Deployment, pods: Sequence[FullPod], now: str) -> dict[str, Any]:
    """The Deployment's status for these pods."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    ready = sum(1 for pod in alive if pod.status.phase == "Running")
    wanted = deployment.spec.replicas
    enough = ready >= wanted
    return {
        "observedGeneration": deployment.metadata.generation,
        "replicas": len(alive),
        "updatedReplicas": len(alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(wanted - ready, 0),
        "conditions": [
            {
                "type": "Available",
                "status": "True" if enough else "False",
                "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                "message": "Deployment has minimum availability."
                if enough
                else "Deployment does not have minimum availability.",
                "lastUpdateTime": now,
                "lastTransitionTime": now,
            }
        ],
    }


class ReplicaController:
    """Keeps Deployments at their number of pods. `run` never returns."""

    def __init__(self, client: KubeClient, deployments: Informer[Deployment], pods: Informer[FullPod]) -> None:
        """`pods` must have the index "owner"."""
        self._client = client
        self._deployments = deployments
        self._pods = pods
        self._reported: dict[str, dict[str, Any]] = {}
        self.queue = WorkQueue("deployment", self._sync)
        deployments.subscribe(self._deployment_changed)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._deployments.synced.wait(), self._pods.synced.wait())
        await self.queue.run()

    def _deployment_changed(self, old: Deployment | None, new: Deployment | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.key)
        elif old is not None:
            self._reported.pop(old.metadata.uid, None)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        owner = pod.metadata.controller if pod is not None else None
        if pod is not None and owner is not None and owner.kind == "Deployment":
            self.queue.add(f"{pod.metadata.namespace}/{owner.name}")

    async def _sync(self, key: str) -> None:
        deployment = self._deployments.objects.get(key)
        if deployment is None or deployment.metadata.deletion_timestamp is not None:
            return
        todo = plan(deployment, self._pods.find("owner", deployment.metadata.uid))
        resource = self._pods.resource
        for _ in range(todo.create):
            reply = await self._client.create(resource.path(deployment.metadata.namespace), encode(replica(deployment)))
            self._pods.observe(resource.decode(reply))
        for pod in todo.delete:
            await self._delete(pod)
        await self._report(deployment)

    async def _delete(self, pod: FullPod) -> None:
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}}))
        except (NotFoundError, ConflictError):
            return

    async def _report(self, deployment: Deployment) -> None:
        now = format_time(datetime.now(UTC))
        wanted = status(deployment, self._pods.find("owner", deployment.metadata.uid), now)
        core = {key: value for key, value in wanted.items() if key != "conditions"}
        if self._reported.get(deployment.metadata.uid) == core:
            return
        path = self._deployments.resource.path(deployment.metadata.namespace, deployment.metadata.name, "status")
        body = encode({"metadata": {"uid": deployment.metadata.uid}, "status": wanted})
        try:
            await self._client.patch(path, body)
        except NotFoundError:
            return
        self._reported[deployment.metadata.uid] = core
