"""Pods that were refused everywhere for want of devices, and when to think about them again.

Promises: a pod is thought about at once, then no more often than `again_seconds` when something has changed for it, and
after `again_most_seconds` in any case. Those of higher priority come first, then those that have waited longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from cachetools import LRUCache

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.view import KnownPods


class Preemptor(msgspec.Struct):
    """A pod by UID, and the nodes where it lacks nothing but devices. `said`: what people were told last."""

    uid: str
    names: frozenset[str]
    since: float
    generation: int
    considered: int = -1
    """The generation on which it was thought about last, at `at` (monotonic seconds)."""
    at: float = 0.0
    said: str = ""
    avoid: dict[str, tuple[str, ...]] = {}
    """Nodes on which it has waited in vain, for pods with these UIDs."""

    def nodes(self, stuck: Collection[str]) -> Sequence[str]:
        """Those to think about, in an order that is always the same: not those that it avoids, as long as pods are
        stuck there.
        """
        self.avoid = {name: uids for name, uids in self.avoid.items() if any(uid in stuck for uid in uids)}
        return sorted(self.names - self.avoid.keys())


class Preemptors:
    """By UID of the pod."""

    def __init__(self, clock: Clock, config: SchedulingConfig) -> None:
        self._clock = clock
        self._config = config
        self._known: LRUCache[str, Preemptor] = LRUCache(config.remembered_pods)
        self._lists: LRUCache[frozenset[str], frozenset[str]] = LRUCache(64)

    def put(self, uid: str, names: Iterable[str], generation: int) -> None:
        """The pod was refused on all of these nodes, on a state of this generation."""
        listed = frozenset(names)
        listed = self._lists.setdefault(listed, listed)
        known = self._known.get(uid)
        if known is None:
            self._known[uid] = Preemptor(uid, listed, self._clock.monotonic(), generation)
        else:
            known.names, known.generation = listed, generation

    def get(self, uid: str) -> Preemptor | None:
        return self._known.get(uid)

    def drop(self, uid: str) -> None:
        """The pod fits, is bound, or is gone."""
        self._known.pop(uid, None)

    def avoid(self, uid: str, node: str, stuck: Sequence[str]) -> None:
        """The pod has waited there in vain, for the end of these pods (UIDs)."""
        known = self._known.get(uid)
        if known is not None:
            known.avoid[node] = tuple(stuck)

    def due(self, pods: KnownPods) -> list[Preemptor]:
        """Those to think about now."""
        found = [preemptor for preemptor in list(self._known.values()) if self._is_due(preemptor)]
        return sorted(found, key=lambda preemptor: (-_priority(preemptor, pods), preemptor.since, preemptor.uid))

    def _is_due(self, preemptor: Preemptor) -> bool:
        if preemptor.considered < 0:
            return True
        age = self._clock.monotonic() - preemptor.at
        if age >= self._config.again_most_seconds:
            return True
        return age >= self._config.again_seconds and preemptor.generation > preemptor.considered

    def consider(self, preemptor: Preemptor, *, again: bool = False) -> None:
        """It is thought about now; `again`: and in `again_seconds` once more, whatever happens."""
        preemptor.considered = preemptor.generation - again
        preemptor.at = self._clock.monotonic()

    def __len__(self) -> int:
        return len(self._known)


def _priority(preemptor: Preemptor, pods: KnownPods) -> int:
    pod = pods.get(preemptor.uid)
    return pod.spec.priority if pod is not None else 0
