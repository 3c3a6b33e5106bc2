"""What pods learn of scheduling: events, the PodScheduled condition, the nominated node, and the end of victims."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import structlog

from dra_extender.api.core import ObjectReference
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.api.meta import format_time
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from dra_extender.kube.events import Event, EventRecorder
from embedded_cluster.objects import PODS, FullPod

log = structlog.get_logger(__name__)

_EVENTS_PER_SECOND = 200.0


class Reports:
    """Writes reports; a report that cannot be written is logged and never stops the scheduler."""

    def __init__(self, client: KubeClient, scheduler_names: Iterable[str]) -> None:
        self._client = client
        self._recorders = {
            name: EventRecorder(client, f"{name}-embedded", controller=name, rate=_EVENTS_PER_SECOND)
            for name in scheduler_names
        }

    @property
    def recorders(self) -> list[EventRecorder]:
        """To be run by the scheduler."""
        return list(self._recorders.values())

    def scheduled(self, pod: FullPod, node: str) -> None:
        """The pod is bound."""
        note = f"Successfully assigned {pod.metadata.key} to {node}"
        self._record(pod, Event(_reference(pod), "Scheduled", "Binding", note))

    async def unscheduled(self, pod: FullPod, reason: str, message: str, nominated: str | None) -> None:
        """The pod found no node. `nominated`: where room is being made, "" for nowhere, None to leave it as it is."""
        self._record(pod, Event(_reference(pod), "FailedScheduling", "Scheduling", message, "Warning"))
        status = unscheduled_status(pod, reason, message, nominated, _now())
        if status:
            await self._patch(pod, status)

    async def evict(self, victim: FullPod, by: FullPod, node: str) -> None:
        """Make room: mark the victim, delete it, report it."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{by.spec.scheduler_name}: preempting to accommodate a higher priority pod",
            "observedGeneration": victim.metadata.generation,
            "lastTransitionTime": _now(),
        }
        await self._patch(victim, {"conditions": [condition]})
        path = PODS.path(victim.metadata.namespace, victim.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode({"preconditions": {"uid": victim.metadata.uid}}))
        except (NotFoundError, ConflictError):
            return
        except ApiError as problem:
            log.warning("victim not deleted", pod=victim.metadata.key, problem=problem.message)
            return
        note = f"Preempted by pod {by.metadata.uid} on node {node}"
        self._record(by, Event(_reference(victim), "Preempted", "Preempting", note))

    async def _patch(self, pod: FullPod, status: dict[str, object]) -> None:
        body = encode({"metadata": {"uid": pod.metadata.uid}, "status": status})
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        try:
            await self._client.patch(path, body, STRATEGIC_PATCH)
        except NotFoundError:
            return
        except ApiError as problem:
            log.warning("pod status not written", pod=pod.metadata.key, problem=problem.message)

    def _record(self, pod: FullPod, event: Event) -> None:
        """In the name of the scheduler that the pod asked for."""
        self._recorders[pod.spec.scheduler_name].record(event)


def unscheduled_status(pod: FullPod, reason: str, message: str, nominated: str | None, now: str) -> dict[str, object]:
    """The status fields to write; empty when the pod says all that already."""
    before = pod.condition
    status: dict[str, object] = {}
    if before is None or (before.status, before.reason, before.message) != ("False", reason, message):
        since = before.last_transition_time if before is not None and before.status == "False" else None
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "observedGeneration": pod.metadata.generation,
                "lastTransitionTime": since or now,
            }
        ]
    if nominated is not None and nominated != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated or None
    return status


def _reference(pod: FullPod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference("Pod", meta.name, meta.namespace, meta.uid, "v1", meta.resource_version)


def _now() -> str:
    return format_time(datetime.now(UTC))
