"""Nominations by preemption: devices kept for preemptors until they are bound or give up.

Promises
- In every verb, devices kept for a pod count as in use for all pods except those of higher priority. This holds for
  each device separately, also for a device that is free already while other victims are still terminating. Without
  nominations, no device is kept and no decision costs more.
- The annotation (`Mark`) and status.nominatedNodeName are written in one request before the first victim is evicted.
  The annotation is enough to restore the nomination after a restart.
- Both are removed when the nomination has ended. The removal is retried until it succeeds. A node that kube-scheduler
  nominated in between is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, is_passing
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceID
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.ports import PodWriter
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

FORBIDDEN: Final = 403
MARK: Final = "dra-extender.dev/preemption"
"""Annotation of pods that this service has nominated: a `Mark` as JSON."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What the next leader has to know of a nomination."""

    node: str
    victims: tuple[str, ...]
    """UIDs of pods."""
    until: str
    """When the nomination ends at the latest, as RFC 3339."""


_mark = msgspec.json.Decoder(Mark)


def mark_of(pod: Pod) -> Mark | None:
    """The mark on the pod; None when it has none or the mark cannot be decoded."""
    text = pod.metadata.annotations.get(MARK)
    if text is None:
        return None
    try:
        return _mark.decode(text)
    except (msgspec.DecodeError, ValueError):
        return None


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


class Nominations:
    """By UID of the pod that is nominated."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}

    def put(self, nomination: Nomination) -> None:
        """Add or replace the pod's nomination."""
        self._by_pod[nomination.pod.metadata.uid] = nomination

    def drop(self, pod_uid: str) -> None:
        """Remove the pod's nomination."""
        self._by_pod.pop(pod_uid, None)

    def get(self, pod_uid: str) -> Nomination | None:
        return self._by_pod.get(pod_uid)

    def clear(self) -> None:
        """Remove all, when another replica has led in between."""
        self._by_pod.clear()

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """The plans kept for other pods whose priority is not lower."""
        if not self._by_pod:
            return ()
        uid, priority = pod.metadata.uid, pod.spec.priority
        return [
            plan
            for other, nomination in self._by_pod.items()
            if other != uid and nomination.pod.spec.priority >= priority
            for plan in nomination.plans
        ]

    def promises(self, claim_uid: str, pod: Pod) -> bool:
        """True when the claim will be deallocated for another pod whose priority is not lower."""
        uid, priority = pod.metadata.uid, pod.spec.priority
        return any(
            other != uid and nomination.pod.spec.priority >= priority and claim_uid in nomination.claims
            for other, nomination in self._by_pod.items()
        )

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._by_pod

    def __iter__(self) -> Iterator[Nomination]:
        return iter(list(self._by_pod.values()))

    def __len__(self) -> int:
        return len(self._by_pod)


class NominationRecords:
    """Writes nominations to the API server and removes them."""

    def __init__(self, view: View, ports: PodWriter) -> None:
        self._view = view
        self._ports = ports
        self._leftovers: dict[str, str] = {}
        """By UID of pods whose nomination has ended: its node."""
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    async def write(self, nomination: Nomination) -> None:
        """Write mark and nominated node. Raises ApiError."""
        self._leftovers.pop(nomination.pod.metadata.uid, None)
        clock = self._view.clock
        until = clock.wall() + timedelta(seconds=nomination.until - clock.monotonic())
        mark = Mark(nomination.node, nomination.victims, format_time(until))
        status = {"nominatedNodeName": nomination.node}
        await self._ports.patch_pod_status(nomination.pod, status, {MARK: msgspec.json.encode(mark).decode()})

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
        self._leftovers[uid] = node

    async def work(self) -> None:
        """Remove what is still on pods."""
        for uid, node in list(self._leftovers.items()):
            pod = self._view.pods.get(uid)
            if pod is None or pod.metadata.deletion_timestamp:
                del self._leftovers[uid]
            elif self._pauses.over(uid):
                await self._erase(pod, node)

    async def _erase(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        status: dict[str, Any] = {"nominatedNodeName": None} if pod.status.nominated_node_name in ("", node) else {}
        try:
            await self._ports.patch_pod_status(pod, status, {MARK: None})
        except ApiError as error:
            if is_passing(error) or error.status == FORBIDDEN:
                self._pauses.failed(uid)
                return
        self._leftovers.pop(uid, None)
        self._pauses.forget(uid)
