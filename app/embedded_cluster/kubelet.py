"""A stand-in for the kubelets of all nodes: pods run when their claims are ready for them, and only then.

A bound pod whose claims are not all allocated and reserved for it waits and says why (event, condition, waiting
container), as the real kubelet does before it calls NodePrepareResources. Pods that are deleted leave after a moment,
as after their grace period. No container runs, so nothing ends by itself: `finish` ends a pod, and a pod with the
annotation `embedded/run-seconds` succeeds after that time. A pod with the annotation `embedded/stays` stays when it is
deleted, as on a node whose kubelet does not answer.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dra_extender.api.core import ObjectReference, Pod
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.api.meta import format_time, parse_time
from dra_extender.api.resource import ResourceClaim
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from dra_extender.kube.events import Event, EventRecorder
from embedded_cluster import podclaims
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import FullPod
from embedded_cluster.podclaims import Lookup, Unready

RUN_SECONDS = "embedded/run-seconds"
STAYS = "embedded/stays"
_KILLED = 137
"""The exit code of containers that are stopped."""


def obstacle(pod: Pod, lookup: Lookup) -> str:
    """Why the bound pod cannot be started; empty when it can.

    Source: Kubernetes 1.36, pkg/kubelet/cm/dra: every claim exists, is that of the pod or its PodGroup if generated, is
    allocated and names one of them in reservedFor; for extended resources the claim of the pod's status counts too.
    """
    names = f"{pod.metadata.namespace}/"
    try:
        found = list(podclaims.claims(pod, lookup))
    except Unready as problem:
        return str(problem)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        claim = lookup(pod.metadata.namespace, extended.resource_claim_name)
        if claim is None or not podclaims.owns(pod, claim):
            return f"ResourceClaim {names}{extended.resource_claim_name} for extended resources does not exist"
        found.append(claim)
    for claim in found:
        if claim.allocation is None:
            return f"ResourceClaim {names}{claim.metadata.name} is not allocated"
        if not claim.reserved_for(pod.metadata.uid) and claim.reserved_for_group(pod.group_name) is None:
            return f"ResourceClaim {names}{claim.metadata.name} is not reserved for this pod"
    return ""


def running(pod: FullPod, now: str) -> dict[str, Any]:
    """The status of a pod that runs."""
    number = zlib.crc32(pod.metadata.uid.encode())
    return {
        "phase": "Running",
        "startTime": pod.status.start_time or now,
        "hostIP": "127.0.0.1",
        "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "conditions": [
            _condition(kind, "True", now)
            for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": _containers(pod, {"running": {"startedAt": now}}),
    }


def waiting(pod: Pod, reason: str, now: str) -> dict[str, Any]:
    """The status of a bound pod that cannot start."""
    return {
        "phase": "Pending",
        "conditions": [_condition("PodReadyToStartContainers", "False", now, "ClaimsNotReady", reason)],
        "containerStatuses": _containers(pod, {"waiting": {"reason": "ContainerCreating", "message": reason}}),
    }


def finished(pod: FullPod, phase: str, now: str, code: int = 1) -> dict[str, Any]:
    """The status of a pod that has ended, well (Succeeded) or not (Failed, with this exit code)."""
    code = 0 if phase == "Succeeded" else code
    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now}
    return {
        "phase": phase,
        "conditions": [
            _condition(kind, "False", now, "PodCompleted" if code == 0 else "PodFailed")
            for kind in ("ContainersReady", "Ready")
        ],
        "containerStatuses": _containers(pod, {"terminated": ended}),
    }


def _containers(pod: Pod, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The statuses of all containers of the pod, which are in the same state."""
    runs = "running" in state
    status = {"ready": runs, "started": runs, "restartCount": 0, "image": "", "imageID": "", "state": state}
    return [{"name": container.name, **status} for container in pod.spec.containers]


def _condition(kind: str, status: str, now: str, reason: str = "", message: str = "") -> dict[str, str]:
    condition = {"type": kind, "status": status, "lastTransitionTime": now}
    return condition | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def runs_for(pod: FullPod) -> float | None:
    """Seconds that the pod runs; None: for ever, also when the annotation is not a finite number."""
    try:
        told = float(pod.metadata.annotations.get(RUN_SECONDS, "nan"))
    except ValueError:
        told = math.nan
    return told if math.isfinite(told) else None


class Kubelet:
    """Runs the pods of all nodes. `stopping`: seconds between the deletion of a running pod and its end."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[FullPod],
        claims: Informer[ResourceClaim],
        events: EventRecorder,
        *,
        stopping: float = 0.1,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._events = events
        self._stopping = stopping
        self._now = now
        self._reasons: dict[str, str] = {}
        self.queue = RateLimitedQueue("kubelet", self._sync, workers=8)
        pods.subscribe(self._pod_changed)
        claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._pods.synced.wait(), self._claims.synced.wait())
        await self.queue.run()

    async def finish(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """End a running pod as if its containers had exited. Raises NotFoundError."""
        pod = self._pods.get(namespace, name)
        if pod is None:
            raise NotFoundError(404, "NotFound", f"pod {namespace}/{name} is not known")
        await self._report(pod, finished(pod, phase, self._stamp()))

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is None:
            if old is not None:
                self._reasons.pop(old.metadata.uid, None)
            return
        if not new.spec.node_name:
            return
        if new.metadata.deletion_timestamp is not None:
            self.queue.add_after(new.metadata.key, self._stopping if new.status.phase == "Running" else 0.0)
        elif new.status.phase in ("", "Pending") or runs_for(new) is not None:
            self.queue.add(new.metadata.key)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        if claim is not None:
            for pod in self._pods.find("claim", claim.metadata.key):
                if pod.spec.node_name and pod.status.phase in ("", "Pending"):
                    self.queue.add(pod.metadata.key)

    async def _sync(self, key: str) -> None:
        pod = self._pods.objects.get(key)
        if pod is None or not pod.spec.node_name:
            return
        if pod.metadata.deletion_timestamp is not None:
            if STAYS not in pod.metadata.annotations:
                await self._remove(pod)
        elif pod.status.phase in ("", "Pending"):
            await self._start(pod)
        elif pod.status.phase == "Running":
            await self._end_when_due(pod)

    async def _start(self, pod: FullPod) -> None:
        reason = obstacle(pod, self._claims.get)
        if not reason:
            self._reasons.pop(pod.metadata.uid, None)
            await self._report(pod, running(pod, self._stamp()))
        elif self._reasons.get(pod.metadata.uid) != reason:
            self._reasons[pod.metadata.uid] = reason
            note = f"Failed to prepare dynamic resources: {reason}"
            where = ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, "v1")
            self._events.record(Event(where, "FailedPrepareDynamicResources", "StartPod", note, "Warning"))
            await self._report(pod, waiting(pod, reason, self._stamp()))

    async def _end_when_due(self, pod: FullPod) -> None:
        seconds, started = runs_for(pod), _started(pod)
        if seconds is None or started is None:
            return
        left = started + seconds - self._now().timestamp()
        if left > 0:
            self.queue.add_after(pod.metadata.key, left)
            return
        await self._report(pod, finished(pod, "Succeeded", self._stamp()))

    async def _remove(self, pod: FullPod) -> None:
        if pod.metadata.finalizers and not pod.finished:
            # Whoever holds the pod reads how it ended.
            await self._report(pod, finished(pod, "Failed", self._stamp(), _KILLED))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode(options))
        except (NotFoundError, ConflictError):
            return  # gone, or another pod of that name

    async def _report(self, pod: FullPod, status: dict[str, Any]) -> None:
        body = encode({"metadata": {"uid": pod.metadata.uid}, "status": status})
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name, "status")
        try:
            reply = await self._client.patch(path, body, STRATEGIC_PATCH)
        except NotFoundError:
            return
        self._pods.observe(self._pods.resource.decode(reply))

    def _stamp(self) -> str:
        return format_time(self._now())


def _started(pod: FullPod) -> float | None:
    """When the containers were started last, in seconds since the epoch."""
    states = (status.state.running for status in pod.status.container_statuses)
    moments = [parse_time(state.started_at) for state in states if state is not None]
    return max((moment.timestamp() for moment in moments if moment is not None), default=None)
