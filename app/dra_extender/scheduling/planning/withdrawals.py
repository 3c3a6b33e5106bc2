"""Nominations of ours that have to be taken away from pods.

Promises: tried again for as long as it takes, but for a pod that is bound, is gone, or has another nomination by now.
Only what is ours is taken away: the write is for the very version of the pod that shows it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.ports import PodWriter
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

AT_ONCE: Final = 16
UNSEEN_SECONDS: Final = 5.0
"""So long after it was written a nomination shows up on the watch, if it was stored."""


class _Leftover(msgspec.Struct, frozen=True):
    node: str
    due: float
    until: float
    """Until then (monotonic seconds) it may still show up."""


class Withdrawals:
    """One per service."""

    def __init__(self, view: View, ports: PodWriter) -> None:
        self._view = view
        self._ports = ports
        self._left: dict[str, _Leftover] = {}
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    def put(self, uid: str, node: str, *, after: float = 0.0, doubtful: bool = False) -> None:
        """The pod's nomination for the node has to go, in so many seconds if nobody has taken it away by then.
        `doubtful`: it is not known whether it was stored.
        """
        now = self._view.clock.monotonic() + after
        seconds = self._view.config.doubt_seconds if doubtful else UNSEEN_SECONDS
        self._left[uid] = _Leftover(node, now, now + seconds)
        self._pauses.forget(uid)

    def drop(self, uid: str) -> None:
        """The pod has a new nomination of ours, or none can be left."""
        self._left.pop(uid, None)

    def clear(self) -> None:
        """Another replica leads, and does this."""
        self._left.clear()

    async def work(self) -> None:
        """Take away what is due."""
        due = [uid for uid, left in self._left.items() if self._view.clock.monotonic() >= left.due]
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*map(self._take_away, due[start : start + AT_ONCE]))

    async def _take_away(self, uid: str) -> None:
        left, view = self._left.get(uid), self._view
        if left is None or uid in view.binding or not self._pauses.over(uid):
            return
        pod = view.pods.get(uid)
        if pod is None or pod.spec.node_name or view.pods.leaving(uid):
            self._left.pop(uid)
        elif pod.status.nominated_node_name != left.node:
            if pod.status.nominated_node_name or view.clock.monotonic() >= left.until:
                self._left.pop(uid)
        else:
            try:
                await self._ports.nominate_pod(pod, None)
            except NotFoundError:
                self._left.pop(uid, None)
            except ConflictError:  # the watch will bring the newer version
                return
            except ApiError as error:
                self._pauses.failed(uid)
                log.warning("a nomination was not withdrawn, will try again", pod=pod.metadata.key, error=repr(error))
            else:
                self._left.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._left

    def __len__(self) -> int:
        return len(self._left)
