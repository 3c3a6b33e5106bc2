"""What the API server knows of nominations: status.nominatedNodeName, and the mark that a restart reads.

Promises: both are written in one request before the first victim goes, and taken away soon when the nomination has
ended, tried again for as long as it takes. A node for which kube-scheduler has nominated the pod meanwhile is left
alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, is_passing
from dra_extender.api.times import format_time
from dra_extender.scheduling.nomination.nominations import MARK, Mark, Nomination
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.ports import PodWriter
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

FORBIDDEN = 403


class Marks:
    """One per service."""

    def __init__(self, view: View, ports: PodWriter) -> None:
        self._view = view
        self._ports = ports
        self._leftovers: dict[str, str] = {}
        """By UID of pods whose nomination has ended: the node of it."""
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    async def write(self, nomination: Nomination) -> None:
        """From now on the nomination survives us. Raises ApiError."""
        self._leftovers.pop(nomination.pod.metadata.uid, None)
        clock = self._view.clock
        until = clock.wall() + timedelta(seconds=nomination.until - clock.monotonic())
        mark = Mark(nomination.node, nomination.victims, format_time(until))
        status = {"nominatedNodeName": nomination.node}
        await self._ports.patch_pod_status(nomination.pod, status, {MARK: msgspec.json.encode(mark).decode()})

    async def name_again(self, nomination: Nomination, pod: Pod) -> None:
        """kube-scheduler has cleared the nominated node at the end of an attempt that had begun before."""
        uid = pod.metadata.uid
        if pod.status.nominated_node_name or not self._pauses.over(uid):
            return
        self._pauses.failed(uid)
        try:
            await self._ports.patch_pod_status(pod, {"nominatedNodeName": nomination.node})
        except ApiError as error:
            log.info("a nominated node was not written", pod=pod.metadata.key, error=repr(error))

    def erase(self, uid: str, node: str) -> None:
        """The nomination of the pod for the node has ended."""
        self._pauses.forget(uid)
        self._leftovers[uid] = node

    async def work(self) -> None:
        """Erase what is left over."""
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
