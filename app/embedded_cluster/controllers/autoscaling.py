"""HorizontalPodAutoscalers on a cluster where nothing is measured: bounds are kept, and the rest is said to be missing.

Promises: what a real cluster without a metrics server does: a set that is larger or smaller than it may be is scaled,
one of size 0 is left alone, and otherwise ScalingActive is False and says why.

Rules: Kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dra_extender.api.core import ObjectReference
from dra_extender.api.decoding import encode
from dra_extender.api.errors import NotFoundError
from dra_extender.api.meta import Condition
from dra_extender.api.times import format_time
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder, Occurrence
from embedded_cluster.informer import Informer
from embedded_cluster.objects import Autoscaler, Deployment, ReplicaSet
from embedded_cluster.workqueue import WorkQueue

_NO_METRICS: Final = (
    "the HPA was unable to compute the replica count: the embedded cluster measures nothing, since no containers run; "
    "use kubectl scale"
)
_REASONS: Final = {
    "Resource": "FailedGetResourceMetric",
    "ContainerResource": "FailedGetContainerResourceMetric",
    "Pods": "FailedGetPodsMetric",
    "Object": "FailedGetObjectMetric",
    "External": "FailedGetExternalMetric",
}
_SCALED: Final = ("Deployment", "ReplicaSet")


class Decision(msgspec.Struct, frozen=True):
    """The size to give to the target, if it is to get another one, why, and the conditions to show (without times)."""

    conditions: tuple[Condition, ...]
    size: int | None = None
    reason: str = ""


def decide(found: Autoscaler, current: int | None) -> Decision:
    """What is done for a target of this size; None: there is no such target."""
    spec, target = found.spec, found.spec.scale_target_ref
    if current is None:
        plural = f"{target.kind.lower()}s"
        missing = (
            f'{plural}.apps "{target.name}" not found' if target.kind in _SCALED else f"no kind {target.kind} here"
        )
        text = f"the HPA controller was unable to get the target's current scale: {missing}"
        return Decision((Condition("AbleToScale", "False", "FailedGetScale", text),))
    text = "the HPA controller was able to get the target's current scale"
    able = Condition("AbleToScale", "True", "SucceededGetScale", text)
    if current == 0:
        off = "scaling is disabled since the replica count of the target is zero"
        return Decision((able, Condition("ScalingActive", "False", "ScalingDisabled", off)))
    size = min(max(current, spec.min_replicas), spec.max_replicas)
    if size != current:
        bound = "above Spec.MaxReplicas" if size < current else "below Spec.MinReplicas"
        text = f"the HPA controller was able to update the target scale to {size}"
        able = Condition("AbleToScale", "True", "SucceededRescale", text)
        return Decision((able,), size, f"Current number of replicas {bound}")
    kind = spec.metrics[0].type if spec.metrics else ""
    reason = _REASONS.get(kind, "InvalidMetricSourceType")
    return Decision((able, Condition("ScalingActive", "False", reason, _NO_METRICS)))


def shown(before: tuple[Condition, ...], wanted: tuple[Condition, ...], now: str) -> list[dict[str, Any]]:
    """The conditions as they are written: those that are not decided anew stay, times change with the status."""
    known = {found.type: found for found in before}
    for condition in wanted:
        last = known.get(condition.type)
        same = last is not None and last.status == condition.status
        since = last.last_transition_time if last is not None and same else now
        known[condition.type] = msgspec.structs.replace(condition, last_transition_time=since)
    return [
        {
            "type": found.type,
            "status": found.status,
            "reason": found.reason,
            "message": found.message,
            "lastTransitionTime": found.last_transition_time,
        }
        for found in known.values()
    ]


class AutoscalerController:
    """Follows autoscalers and what they scale. `run` never returns."""

    def __init__(
        self,
        client: KubeClient,
        autoscalers: Informer[Autoscaler],
        deployments: Informer[Deployment],
        sets: Informer[ReplicaSet],
        events: EventRecorder,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._autoscalers = autoscalers
        self._targets: dict[str, Informer[Deployment] | Informer[ReplicaSet]] = {
            "Deployment": deployments,
            "ReplicaSet": sets,
        }
        self._events = events
        self._now = now
        self.queue: WorkQueue[str] = WorkQueue("horizontalpodautoscaler", self._sync)
        autoscalers.subscribe(self._autoscaler_changed)
        deployments.subscribe(self._target_changed)
        sets.subscribe(self._target_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._autoscalers.synced.wait()
        await asyncio.gather(*(informer.synced.wait() for informer in self._targets.values()))
        await self.queue.run()

    def _autoscaler_changed(self, old: Autoscaler | None, new: Autoscaler | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.key)

    def _target_changed(self, old: Deployment | ReplicaSet | None, new: Deployment | ReplicaSet | None) -> None:
        changed = new or old
        for key, found in self._autoscalers.objects.items():
            where = (found.metadata.namespace, found.spec.scale_target_ref.name)
            if changed is not None and where == (changed.metadata.namespace, changed.metadata.name):
                self.queue.add(key)

    async def _sync(self, key: str) -> None:
        found = self._autoscalers.objects.get(key)
        if found is None or found.metadata.deletion_timestamp is not None:
            return
        current = self._size(found)
        decision = decide(found, current)
        if decision.size is not None:
            await self._scale(found, decision.size)
            self._tell(found, "SuccessfulRescale", f"New size: {decision.size}; reason: {decision.reason}")
        await self._report(found, current, decision)

    def _size(self, found: Autoscaler) -> int | None:
        informer = self._targets.get(found.spec.scale_target_ref.kind)
        if informer is None:
            return None
        target = informer.get(found.metadata.namespace, found.spec.scale_target_ref.name)
        return target.spec.replicas if target is not None else None

    async def _scale(self, found: Autoscaler, size: int) -> None:
        target = found.spec.scale_target_ref
        path = self._targets[target.kind].resource.path(found.metadata.namespace, target.name, "scale")
        await self._client.patch(path, encode({"spec": {"replicas": size}}))

    def _tell(self, found: Autoscaler, reason: str, note: str) -> None:
        meta = found.metadata
        where = ObjectReference("HorizontalPodAutoscaler", meta.name, meta.namespace, meta.uid, "autoscaling/v2")
        self._events.record(Occurrence(where, reason, "Rescale", note, "Normal"))

    async def _report(self, found: Autoscaler, current: int | None, decision: Decision) -> None:
        stamp = format_time(self._now())
        status: dict[str, Any] = {"conditions": shown(found.status.conditions, decision.conditions, stamp)}
        if current is not None:
            status |= {"currentReplicas": current, "desiredReplicas": decision.size or 0}
        if decision.size is not None:
            status["lastScaleTime"] = stamp
        meta = found.metadata
        path = self._autoscalers.resource.path(meta.namespace, meta.name, "status")
        try:
            reply = await self._client.patch(path, encode({"metadata": {"uid": meta.uid}, "status": status}))
        except NotFoundError:
            return
        self._autoscalers.observe(self._autoscalers.resource.decode(reply))
