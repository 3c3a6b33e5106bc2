"""What the Deployment controller decides, apart from how it finds out and writes.

Promises: no more pods than wanted and `maxSurge`, no fewer available ones than wanted less `maxUnavailable`. Several
ReplicaSets are not scaled in proportion: the newest grows, the oldest shrinks first.

Rules: Kubernetes 1.36, pkg/controller/deployment (rolling.go, recreate.go, sync.go). Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from embedded_cluster.controllers.podsets import HASH_LABEL, scaled, template_hash
from embedded_cluster.objects import Deployment, ReplicaSet, controlled_by

REVISION: Final = "deployment.kubernetes.io/revision"
_FOLLOWED: Final = "kubernetes.io/change-cause"


class Steps(msgspec.Struct, frozen=True):
    """`create` the ReplicaSet of the newest template with so many pods; scale others; delete what nobody needs."""

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
    """The old ones that lose pods: those that are not available first, the oldest first."""
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
        "conditions": [
            _condition("Available", enough, *minimum, now),
            _condition("Progressing", True, *progress, now),
        ],
    }


def _condition(kind: str, holds: bool, reason: str, message: str, now: str) -> dict[str, Any]:
    return {
        "type": kind, "status": "True" if holds else "False", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    }  # fmt: skip
