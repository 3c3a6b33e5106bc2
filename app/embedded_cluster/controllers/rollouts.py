"""Deployments: a ReplicaSet for each template there was, and the pace at which the newest takes over from the others.

The rules are in `rolloutrules`. Revisions are numbered; `revisionHistoryLimit` old ReplicaSets without pods stay, so
that `kubectl rollout history` and `undo` work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dra_extender.api.decoding import encode
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.api.times import format_time
from dra_extender.kube.client import KubeClient
from embedded_cluster.controllers import rolloutrules
from embedded_cluster.controllers.rolloutrules import REVISION, revision_of
from embedded_cluster.informer import Informer
from embedded_cluster.objects import Deployment, ReplicaSet
from embedded_cluster.workqueue import RateLimitedQueue


class RolloutController:
    """Keeps ReplicaSets as Deployments want them. `run` never returns."""

    def __init__(self, client: KubeClient, deployments: Informer[Deployment], sets: Informer[ReplicaSet]) -> None:
        """`sets` must have the index "owner"."""
        self._client = client
        self._deployments = deployments
        self._sets = sets
        self._reported: dict[str, dict[str, Any]] = {}
        self.queue = RateLimitedQueue("deployment", self._sync)
        deployments.subscribe(self._deployment_changed)
        sets.subscribe(self._set_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._deployments.synced.wait(), self._sets.synced.wait())
        await self.queue.run()

    def _deployment_changed(self, old: Deployment | None, new: Deployment | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.key)
        elif old is not None:
            self._reported.pop(old.metadata.uid, None)

    def _set_changed(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        found = new or old
        owner = found.metadata.controller if found is not None else None
        if found is not None and owner is not None and owner.kind == "Deployment":
            self.queue.add(f"{found.metadata.namespace}/{owner.name}")

    async def _sync(self, key: str) -> None:
        deployment = self._deployments.objects.get(key)
        if deployment is None or deployment.metadata.deletion_timestamp is not None:
            return
        sets = self._sets.find("owner", deployment.metadata.uid)
        todo = rolloutrules.steps(deployment, sets)
        revision = await self._number(deployment, sets, is_new=todo.create is not None)
        resource, namespace = self._sets.resource, deployment.metadata.namespace
        if todo.create is not None:
            made = encode(rolloutrules.replica_set(deployment, todo.create, revision))
            self._sets.observe(resource.decode(await self._client.create(resource.path(namespace), made)))
        for found, count in todo.scale:
            await self._change(found, {"spec": {"replicas": count}})
        for found in todo.delete:
            body = msgspec.json.encode({"preconditions": {"uid": found.metadata.uid}})
            try:
                await self._client.delete(resource.path(namespace, found.metadata.name), body)
            except (NotFoundError, ConflictError):
                continue
        await self._report(deployment)

    async def _number(self, deployment: Deployment, sets: Sequence[ReplicaSet], *, is_new: bool) -> int:
        """The revision of the newest ReplicaSet, told on it and on the Deployment."""
        new = rolloutrules.newest(deployment, sets)
        before = max((revision_of(found) for found in sets if found is not new), default=0)
        revision = before + 1 if is_new or new is None or revision_of(new) <= before else revision_of(new)
        if new is not None and revision_of(new) != revision:
            await self._change(new, {"metadata": {"annotations": {REVISION: str(revision)}}})
        if not deployment.spec.paused and revision_of(deployment) != revision:
            path = self._deployments.resource.path(deployment.metadata.namespace, deployment.metadata.name)
            body = {"metadata": {"uid": deployment.metadata.uid, "annotations": {REVISION: str(revision)}}}
            reply = await self._client.patch(path, encode(body))
            self._deployments.observe(self._deployments.resource.decode(reply))
        return revision

    async def _change(self, found: ReplicaSet, change: dict[str, Any]) -> None:
        path = self._sets.resource.path(found.metadata.namespace, found.metadata.name)
        body = change | {"metadata": change.get("metadata", {}) | {"uid": found.metadata.uid}}
        try:
            self._sets.observe(self._sets.resource.decode(await self._client.patch(path, encode(body))))
        except NotFoundError:
            return

    async def _report(self, deployment: Deployment) -> None:
        now = format_time(datetime.now(UTC))
        wanted = rolloutrules.status(deployment, self._sets.find("owner", deployment.metadata.uid), now)
        core = {key: value for key, value in wanted.items() if key != "conditions"}
        core["reasons"] = [condition["reason"] for condition in wanted["conditions"]]
        if self._reported.get(deployment.metadata.uid) == core:
            return
        path = self._deployments.resource.path(deployment.metadata.namespace, deployment.metadata.name, "status")
        try:
            await self._client.patch(path, encode({"metadata": {"uid": deployment.metadata.uid}, "status": wanted}))
        except NotFoundError:
            return
        self._reported[deployment.metadata.uid] = core
