"""Deployments: a ReplicaSet for each template there was, and the pace at which the newest takes over from the others.

Promises: no more pods than wanted and `maxSurge`, no fewer available ones than wanted less `maxUnavailable`. Several
ReplicaSets are not scaled in proportion: the newest grows, the oldest shrinks first. Revisions are numbered;
`revisionHistoryLimit` old ReplicaSets without pods stay, so that `kubectl rollout history` and `undo` work.

Rules: Kubernetes 1.36, pkg/controller/deployment (rolling.go, recreate.go, sync.go). They are pure functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dra_extender.api.decoding import encode
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.api.meta import format_time
from dra_extender.kube.client import KubeClient
from embedded_cluster.controllers.podsets import HASH_LABEL, scaled, template_hash
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import Deployment, ReplicaSet, controlled_by

REVISION: Final = "deployment.kubernetes.io/revision"
_FOLLOWED: Final = "kubernetes.io/change-cause"


class Steps(msgspec.Struct, frozen=True):
    """`create`: number of pods of the newest template's ReplicaSet, if it is missing; others are scaled or deleted."""

    create: int | None = None
    scale: tuple[tuple[ReplicaSet, int], ...] = ()
    delete: tuple[ReplicaSet, ...] = ()


def revision_of(found: ReplicaSet | Deployment) -> int:
    told = found.metadata.annotations.get(REVISION, "")
    return int(told) if told.isdecimal() else 0


def newest(deployment: Deployment, sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The ReplicaSet of the template as it is now."""
    digest = template_hash(deployment.spec.template)
    return next((found for found in sets if found.metadata.labels.get(HASH_LABEL) == digest), None)


def steps(deployment: Deployment, sets: Sequence[ReplicaSet]) -> Steps:
    """What brings the ReplicaSets nearer to what the Deployment says."""
    spec = deployment.spec
    new = newest(deployment, sets)
    others = [found for found in sets if found is not new]
    scale: list[tuple[ReplicaSet, int]] = []
    if spec.paused:
        running = new or max(others, key=revision_of, default=None)
        wanted = [(running, spec.replicas)] if running is not None and running.spec.replicas != spec.replicas else []
        return Steps(scale=tuple(wanted))
    more = _growth(deployment, new, others)
    scale += _shrinking(deployment, new, others)
    if new is not None and new.spec.replicas != more:
        scale.append((new, more))
    return Steps(more if new is None else None, tuple(scale), tuple(_outdated(deployment, others)))


def _growth(deployment: Deployment, new: ReplicaSet | None, others: Sequence[ReplicaSet]) -> int:
    """How many pods of the newest template there may be for now."""
    spec, have = deployment.spec, new.spec.replicas if new is not None else 0
    if spec.strategy.type == "Recreate":
        gone = all(found.spec.replicas == 0 and found.status.replicas == 0 for found in others)
        return spec.replicas if gone else have
    if have >= spec.replicas:
        return spec.replicas
    surge, _ = bounds(deployment)
    total = have + sum(found.spec.replicas for found in others)
    return min(spec.replicas, have + max(spec.replicas + surge - total, 0))


def _shrinking(
    deployment: Deployment, new: ReplicaSet | None, others: Sequence[ReplicaSet]
) -> Iterator[tuple[ReplicaSet, int]]:
    """The old ReplicaSets that lose pods: unavailable pods first, the oldest set first."""
    spec = deployment.spec
    old = sorted((found for found in others if found.spec.replicas), key=revision_of)
    if spec.strategy.type == "Recreate":
        yield from ((found, 0) for found in old)
        return
    _, unavailable = bounds(deployment)
    least = spec.replicas - unavailable
    coming = max(new.spec.replicas - new.status.available_replicas, 0) if new is not None else spec.replicas
    total = sum(found.spec.replicas for found in old) + (new.spec.replicas if new is not None else 0)
    may_go = max(total - least - coming, 0) if new is not None else 0
    available = sum(found.status.available_replicas for found in (*old, *((new,) if new is not None else ())))
    spare = max(available - least, 0)
    for found in old:
        idle = max(found.spec.replicas - found.status.available_replicas, 0)
        gone = min(idle, may_go)
        more = min(found.spec.replicas - gone, spare, may_go - gone)
        if gone + more:
            may_go, spare = may_go - gone - more, spare - more
            yield found, found.spec.replicas - gone - more


def bounds(deployment: Deployment) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) in pods; both zero would be the end of it, so one may be unavailable then."""
    rolling, wanted = deployment.spec.strategy.rolling_update, deployment.spec.replicas
    surge, unavailable = scaled(rolling.max_surge, wanted, up=True), scaled(rolling.max_unavailable, wanted, up=False)
    return surge, min(unavailable if surge or unavailable else 1, wanted)


def _outdated(deployment: Deployment, others: Sequence[ReplicaSet]) -> Iterator[ReplicaSet]:
    idle = [found for found in others if not found.spec.replicas and not found.status.replicas]
    idle.sort(key=revision_of)
    yield from idle[: max(len(idle) - deployment.spec.revision_history_limit, 0)]


def replica_set(deployment: Deployment, count: int, revision: int) -> dict[str, Any]:
    """The ReplicaSet of the template as it is now, ready to be encoded."""
    meta, template = deployment.metadata, deployment.spec.template
    digest = template_hash(template)
    labels = template.metadata.labels | {HASH_LABEL: digest}
    followed = {key: value for key, value in meta.annotations.items() if key == _FOLLOWED}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta.name}-{digest}",
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": followed | {REVISION: str(revision)},
            "ownerReferences": [controlled_by("Deployment", meta)],
        },
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": deployment.spec.selector.match_labels | {HASH_LABEL: digest}},
            "template": {
                "metadata": {"labels": labels, "annotations": template.metadata.annotations},
                "spec": template.spec,
            },
        },
    }


def status(deployment: Deployment, sets: Sequence[ReplicaSet], now: str) -> dict[str, Any]:
    """The Deployment's status for these ReplicaSets."""
    new, wanted = newest(deployment, sets), deployment.spec.replicas
    replicas = sum(found.status.replicas for found in sets)
    available = sum(found.status.available_replicas for found in sets)
    updated = new.status.replicas if new is not None else 0
    _, unavailable = bounds(deployment)
    enough = available >= wanted - unavailable
    done = updated == wanted == replicas == available
    name = new.metadata.name if new is not None else ""
    progress = (
        ("NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
        if done
        else ("ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
    )
    minimum = (
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
        if enough
        else ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    )
    return {
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": sum(found.status.ready_replicas for found in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(max(wanted, replicas) - available, 0),
        "conditions": [_condition("Available", enough, *minimum, now), _condition("Progressing", True, *progress, now)],
    }


def _condition(kind: str, holds: bool, reason: str, message: str, now: str) -> dict[str, Any]:
    return {
        "type": kind, "status": "True" if holds else "False", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    }  # fmt: skip


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
        todo = steps(deployment, sets)
        revision = await self._number(deployment, sets, is_new=todo.create is not None)
        resource, namespace = self._sets.resource, deployment.metadata.namespace
        if todo.create is not None:
            made = encode(replica_set(deployment, todo.create, revision))
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
        new = newest(deployment, sets)
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
        wanted = status(deployment, self._sets.find("owner", deployment.metadata.uid), now)
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
