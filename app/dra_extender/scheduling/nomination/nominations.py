"""Nominations by preemption: devices kept for preemptors until they are bound or give up.

Promises
- In every verb, devices kept for a pod count as in use for all pods except those of higher priority. This holds for
  each device separately, also for a device that is free already while other victims are still terminating. Without
  nominations, no device is kept and no decision costs more.
- The condition `PREEMPTING` and status.nominatedNodeName are written in one request before the first victim is evicted.
  Users who may only write pods cannot write either, so the next leader relies on them.
- Both are removed when the nomination has ended. The removal is retried until it succeeds. A node that kube-scheduler
  nominated in between is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, is_passing
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.ports import Ports
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses

log = structlog.get_logger(__name__)

FORBIDDEN: Final = 403
PREEMPTING: Final = "dra-extender.dev/Preempting"
"""Condition of pods that preemption has nominated for status.nominatedNodeName."""


def is_preempting(pod: Pod) -> bool:
    """True when preemption has nominated the pod, whichever replica did."""
    return any(condition.type == PREEMPTING for condition in pod.status.conditions)


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """The node on which victims are evicted for a pod, and the plans that are kept for it."""

    pod: Pod
    """The pod as it was when it was nominated."""
    node: str
    victims: tuple[str, ...]
    """UIDs of pods."""
    plans: tuple[Planned, ...]
    until: float
    """When the nomination ends at the latest, monotonic seconds."""
    claims: tuple[str, ...] = ()
    """UIDs of claims that are free once the victims are gone."""
    devices: Mapping[str, Sequence[DeviceID]] = {}
    """By UID of a victim: the devices that the pod needs of it, where known."""
    freed: float | None = None
    """Since when all victims are gone, monotonic seconds."""

    def promised(self) -> Iterator[tuple[str, bool]]:
        """The claims that are promised to the pod, as (UID, True when the claim is to be deallocated first)."""
        yield from ((uid, True) for uid in self.claims)
        yield from ((claim.metadata.uid, False) for claim, _ in self.plans)


class Nominations:
    """By UID of the pod that is nominated, and by promised claim."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}
        self._promised: dict[tuple[str, bool], set[str]] = {}
        """The UIDs of the pods that a claim is promised to."""

    def put(self, nomination: Nomination) -> None:
        """Add or replace the pod's nomination."""
        uid = nomination.pod.metadata.uid
        self._unpromise(uid)
        self._by_pod[uid] = nomination
        for key in nomination.promised():
            self._promised.setdefault(key, set()).add(uid)

    def drop(self, pod_uid: str) -> None:
        """Remove the pod's nomination."""
        self._unpromise(pod_uid)
        self._by_pod.pop(pod_uid, None)

    def _unpromise(self, pod_uid: str) -> None:
        nomination = self._by_pod.get(pod_uid)
        for key in nomination.promised() if nomination is not None else ():
            pods = self._promised.get(key, set())
            pods.discard(pod_uid)
            if not pods:
                self._promised.pop(key, None)

    def get(self, pod_uid: str) -> Nomination | None:
        return self._by_pod.get(pod_uid)

    def clear(self) -> None:
        """Remove all, when another replica has led in between."""
        self._by_pod.clear()
        self._promised.clear()

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """The plans kept for other pods whose priority is not lower. Linear in all plans that are kept."""
        if not self._by_pod:
            return ()
        uid, priority = pod.metadata.uid, pod.spec.priority
        return [
            plan
            for other, nomination in self._by_pod.items()
            if other != uid and nomination.pod.spec.priority >= priority
            for plan in nomination.plans
        ]

    def promises(self, claim: ResourceClaim, pod: Pod) -> bool:
        """True when the claim will be deallocated, or allocated on the nominated node, for another pod whose priority
        is not lower. Looks only at the nominations that concern the claim.
        """
        pod_uid, priority = pod.metadata.uid, pod.spec.priority
        others = self._promised.get((claim.metadata.uid, claim.allocation is not None), ())
        return any(other != pod_uid and self._by_pod[other].pod.spec.priority >= priority for other in others)

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._by_pod

    def __iter__(self) -> Iterator[Nomination]:
        return iter(list(self._by_pod.values()))

    def __len__(self) -> int:
        return len(self._by_pod)


class NominationRecords:
    """Writes nominations to the API server and removes them."""

    def __init__(self, view: View, ports: Ports) -> None:
        self._view = view
        self._ports = ports
        self._leftovers: dict[str, str] = {}
        """By UID of pods whose nomination has ended: its node."""
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    async def write(self, nomination: Nomination) -> None:
        """Write condition and nominated node. Raises ApiError."""
        self._leftovers.pop(nomination.pod.metadata.uid, None)
        condition = {
            "type": PREEMPTING,
            "status": "True",
            "reason": "PodsEvicted",
            "message": "pods of lower priority are evicted on the nominated node",
            "lastTransitionTime": format_time(self._view.clock.wall()),
        }
        status = {"nominatedNodeName": nomination.node, "conditions": [condition]}
        await self._ports.patch_pod_status(nomination.pod, status)

    async def name_again(self, nomination: Nomination, pod: Pod) -> None:
        """Write the nominated node again when kube-scheduler has cleared it at the end of an earlier attempt."""
        uid = pod.metadata.uid
        if pod.status.nominated_node_name or not self._pauses.over(uid):
            return
        self._pauses.failed(uid)
        try:
            await self._ports.patch_pod_status(pod, {"nominatedNodeName": nomination.node})
        except ApiError as error:
            log.info("a nominated node was not written, will try again", pod=pod.metadata.key, error=repr(error))

    def erase(self, uid: str, node: str) -> None:
        """The nomination has ended: remove it from the pod."""
        self._pauses.forget(uid)
        self._leftovers.setdefault(uid, node)

    async def work(self) -> None:
        """Remove what is still on pods."""
        for uid, node in list(self._leftovers.items()):
            pod = self._view.pods.get(uid)
            if pod is None:
                del self._leftovers[uid]
            elif self._pauses.over(uid):
                await self._erase(pod, node)

    async def _erase(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        status: dict[str, Any] = {"conditions": [{"type": PREEMPTING, "$patch": "delete"}]}
        if pod.status.nominated_node_name in ("", node):
            status["nominatedNodeName"] = None
        try:
            await self._ports.patch_pod_status(pod, status)
        except ApiError as error:
            if is_passing(error) or error.status == FORBIDDEN:
                self._pauses.failed(uid)
                return
        self._leftovers.pop(uid, None)
        self._pauses.forget(uid)
