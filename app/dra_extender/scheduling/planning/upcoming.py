"""The pods that kube-scheduler will try next, and which of them may be nominated at this moment.

Promises: pods come in kube-scheduler's order, no more than will be bound in the next seconds. Left out are those that a
scheduler is trying, those that fit nowhere, and for a while those that were nominated in vain; who was so too often is
left alone for good. Nothing is decided here about nodes or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cachetools import LRUCache, TTLCache

from dra_extender.api.core import Pod
from dra_extender.api.times import parse_time
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.planning.eligibility import objection
from dra_extender.scheduling.planning.horizon import MOST, Horizon
from dra_extender.scheduling.planning.nowhere import Nowhere
from dra_extender.scheduling.planning.queue import Queue
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View

QUEUED_SECONDS: Final = 0.1
"""A pod that has come just now is probably tried before it could be nominated."""
TRIED_SECONDS: Final = 5.0
"""So long after it was tried a pod is about to be bound, unless it was refused."""
FAILURES: Final = 3
"""A pod that was nominated in vain so often is left alone: something keeps it away that is not looked at here."""
SCANNED: Final = 2 * MOST
"""Pods from the front of the queue that are looked at, those included that cannot be scheduled now."""
CALLERS: Final = 100
REMEMBERED: Final = 20_000


class Upcoming:
    """One per planner. Tell it what becomes of pods; `makes_room`: true for those with a nomination of preemption's."""

    def __init__(self, view: View, requeue: RequeueTrigger, makes_room: Callable[[str], bool]) -> None:
        clock = view.clock
        self._view = view
        self._makes_room = makes_room
        self._queue = Queue()
        self._horizon = Horizon(clock)
        self._nowhere = Nowhere(clock, requeue)
        self._pauses: Pauses[str] = Pauses(clock, view.config)
        self._failures: LRUCache[str, int] = LRUCache(REMEMBERED)
        self._stale: LRUCache[str, str] = LRUCache(REMEMBERED)
        """By UID: the version that is not the stored one."""
        self._tried: TTLCache[str, bool] = TTLCache(REMEMBERED, TRIED_SECONDS, timer=clock.monotonic)
        self._callers: set[str] = set()

    # --- what happens to pods ---------------------------------------------------------------------------------------

    def waits(self, pod: Pod) -> None:
        """A version of a pod without a node."""
        if not self._view.config.scheduler_names or self._is_ours(pod):
            self._queue.put(pod.metadata.uid, pod.spec.priority, self._created(pod))

    def ended(self, uid: str, node: str) -> None:
        """The pod does not wait any more: it is bound to this node, or to none."""
        if node and uid in self._queue:
            self._horizon.bound()
        self._queue.drop(uid)
        self._tried.pop(uid, None)

    def tried(self, pod: Pod) -> None:
        """A scheduler asks about the pod."""
        uid = pod.metadata.uid
        if len(self._callers) < CALLERS:
            self._callers.add(pod.spec.scheduler_name)
        if uid not in self._tried:
            self._queue.asked(uid)
        self._tried[uid] = True

    def refused(self, uid: str) -> None:
        """The scheduler was told that the pod fits nowhere."""
        self._tried.pop(uid, None)
        self._queue.again(uid, self._view.clock.wall().timestamp())

    def fits_nowhere(self, pod: Pod, generation: int) -> None:
        """That was decided here, on a state of this generation."""
        self._nowhere.put(pod, generation)

    def outdated(self, pod: Pod) -> None:
        """The API server has another version of the pod: the watch will bring it."""
        self._stale[pod.metadata.uid] = pod.metadata.resource_version

    def expired(self, uid: str) -> None:
        """The pod was nominated, and its turn did not come in time."""
        self._pauses.failed(uid)

    def failed(self, uid: str) -> None:
        """The pod was nominated in vain."""
        self._pauses.failed(uid)
        self._failures[uid] = self._failures.get(uid, 0) + 1

    # --- who is next ------------------------------------------------------------------------------------------------

    def first(self) -> Sequence[Pod]:
        """Those that are worth a nomination, in order; some of them may have one."""
        found: list[Pod] = []
        for uid in self._queue.first(SCANNED):
            pod = self._view.pods.get(uid)
            if pod is None or uid in self._tried or uid in self._view.binding:
                continue
            if pod.spec.scheduling_gates or not self._is_ours(pod) or pod in self._nowhere:
                continue
            found.append(pod)
        waiting = len(found) if len(self._queue) <= SCANNED else len(self._queue)
        return found[: self._horizon.ahead(waiting, self._queue.missed)]

    def may_be_nominated(self, pod: Pod) -> bool:
        """True for a pod that waits and is not being tried, if nothing speaks against it."""
        view, uid = self._view, pod.metadata.uid
        if uid not in self._queue or uid in self._tried or uid in view.binding:
            return False
        if self._makes_room(uid) or not view.uses_devices(pod) or self._stale.get(uid) == pod.metadata.resource_version:
            return False
        if self._failures.get(uid, 0) >= FAILURES or not self._pauses.over(uid):
            return False
        if view.clock.wall().timestamp() - self._queue.since(uid) < QUEUED_SECONDS:
            return False
        return objection(pod, preferring=view.config.nominate_preferring) is None

    def is_tried(self, uid: str) -> bool:
        """True when a scheduler asked about the pod a moment ago, and it was not refused."""
        return uid in self._tried

    def _is_ours(self, pod: Pod) -> bool:
        """True for pods of the schedulers that call us: those of the settings, or else those that have."""
        return pod.spec.scheduler_name in (self._view.config.scheduler_names or self._callers)

    def _created(self, pod: Pod) -> float:
        created = parse_time(pod.metadata.creation_timestamp or "")
        return (created or self._view.clock.wall()).timestamp()
