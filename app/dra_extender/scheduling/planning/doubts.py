"""Nominations on pods that may be ours although nobody looks after them.

Promises: a nomination that was written, or may have been, is found again whenever the watch shows it: after a restart,
after a write of unknown outcome, after an answer that was only about a later attempt. Whose it is the API server says;
what cannot be asked now is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.ports import PodWriter
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

AT_ONCE: Final = 16
"""Requests under way at the same time."""
PORTION: Final = 512
"""Pods that are looked at in one turn."""
REMEMBERED: Final = 20_000


class Doubts:
    """One per planner. `makes_room`: true for pods that have a nomination of preemption's."""

    def __init__(self, view: View, ports: PodWriter, makes_room: Callable[[str], bool]) -> None:
        self._view = view
        self._ports = ports
        self._makes_room = makes_room
        self._written: LRUCache[str, str] = LRUCache(REMEMBERED)
        """By UID: the node that was written last, or may have been."""
        self._open: dict[str, None] = {}
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    def wrote(self, uid: str, node: str) -> None:
        """A write is on its way."""
        self._written[uid] = node

    def unattended(self, pod: Pod) -> None:
        """If the pod shows a nomination, nobody looks after it."""
        node = pod.status.nominated_node_name
        if node and self._written.get(pod.metadata.uid) == node:
            self._open[pod.metadata.uid] = None

    async def look_round(self) -> None:
        """Doubt every nomination there is."""
        for number, pod in enumerate(self._view.pods, start=1):
            if number % PORTION == 0:
                await asyncio.sleep(0)
            if pod.status.nominated_node_name and not pod.spec.node_name and not self._makes_room(pod.metadata.uid):
                self._open[pod.metadata.uid] = None

    def drop(self, uid: str) -> None:
        """The pod does not wait any more."""
        self._open.pop(uid, None)

    def clear(self) -> None:
        """Another replica has led, and may have written anything."""
        self._open.clear()

    async def settle(self) -> list[Pod]:
        """The pods whose nomination turned out to be ours; those that cannot be asked about yet stay in doubt."""
        due = [uid for uid in self._open if self._pauses.over(uid)]
        found: list[Pod] = []
        for start in range(0, len(due), AT_ONCE):
            pods = await asyncio.gather(*map(self._settle, due[start : start + AT_ONCE]))
            found += [pod for pod in pods if pod is not None]
        return found

    async def _settle(self, uid: str) -> Pod | None:
        pod = self._view.pods.get(uid)
        if pod is None or pod.spec.node_name or not pod.status.nominated_node_name or self._makes_room(uid):
            self.drop(uid)
            return None
        try:
            node = await self._ports.nominated_ahead(pod)
        except ApiError as error:
            self._pauses.failed(uid)
            log.info("it is not known who has nominated a pod", pod=pod.metadata.key, error=repr(error))
            return None
        self._pauses.forget(uid)
        self.drop(uid)
        if node:
            self._written[uid] = node  # what the watch shows may be older
        return pod if node == pod.status.nominated_node_name else None

    def __len__(self) -> int:
        return len(self._open)
