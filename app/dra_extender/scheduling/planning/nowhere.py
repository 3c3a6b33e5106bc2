"""Pods that fit nowhere: kube-scheduler will not try them before something becomes better.

Promises: each is thought about again at once when it changes itself, a second later when something has become better
since, and every five seconds in any case; in between asking about it costs a look-up.
"""

from __future__ import annotations

from typing import Final

from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.requeue import RequeueTrigger

IMPROVED_SECONDS: Final = 1.0
SAME_SECONDS: Final = 5.0
REMEMBERED: Final = 20_000


class Nowhere:
    """By UID of the pod."""

    def __init__(self, clock: Clock, requeue: RequeueTrigger) -> None:
        self._clock = clock
        self._requeue = requeue
        self._known: LRUCache[str, tuple[str, int, float]] = LRUCache(REMEMBERED)
        """Version of the pod, generation of the state, and when (monotonic seconds)."""

    def put(self, pod: Pod, generation: int) -> None:
        """That was decided on a state of this generation."""
        meta = pod.metadata
        self._known[meta.uid] = meta.resource_version, generation, self._clock.monotonic()

    def __contains__(self, pod: Pod) -> bool:
        version, generation, at = self._known.get(pod.metadata.uid, ("", 0, 0.0))
        if version != pod.metadata.resource_version:
            return False
        seconds = SAME_SECONDS if generation == self._requeue.generation else IMPROVED_SECONDS
        return self._clock.monotonic() - at < seconds
