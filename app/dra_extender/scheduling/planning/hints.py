"""Pods that are nominated ahead of kube-scheduler's queue.

Promises: what a pod would take where it is nominated is a tentative plan like any other (`Reservations`): a hint to
others, never a promise, and no pod is kept from being bound by it. At most one hint per pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.planindex import PlanIndex, Touched
from dra_extender.scheduling.reservations import Reservations, Tentative


class Hint(msgspec.Struct, kw_only=True):
    """Which node a pod is to be tried on first, since when (monotonic seconds)."""

    uid: str
    priority: int
    node: str
    plan: Tentative | None
    """None: it is known from the pod only, as another replica has written it."""
    since: float
    looked: float
    """When it was decided last that the pod fits there."""
    seen: bool = False
    """True once the watch has shown the pod with it."""

    def is_late(self, now: float, moved: float, config: SchedulingConfig) -> bool:
        """True when the queue, which `moved` last at that time, stands still, or the pod's turn should have come long
        ago.
        """
        standing = now - max(self.since, moved) >= config.nominated_seconds
        return standing or now - self.since >= config.nominated_most_seconds


class Hints:
    """By UID of the pod."""

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self._by_pod: dict[str, Hint] = {}
        self._index = PlanIndex()

    def put(self, hint: Hint) -> None:
        """From now on, or with another plan."""
        self._by_pod[hint.uid] = hint
        if hint.plan is not None:
            self._reservations.put(hint.plan)
            self._index.put(hint.uid, hint.plan.claims, hint.plan.allocations)

    def drop(self, uid: str) -> Hint | None:
        """The hint has ended."""
        hint = self._by_pod.pop(uid, None)
        if hint is not None:
            self._reservations.drop(uid)
            self._index.drop(uid)
        return hint

    def get(self, uid: str) -> Hint | None:
        return self._by_pod.get(uid)

    def clear(self) -> None:
        """Another replica leads, and knows better."""
        for uid in list(self._by_pod):
            self.drop(uid)

    def before(self, uid: str, priority: int, touched: Iterable[Touched]) -> Iterator[Planned]:
        """What others would take: the plans that touch any of these, of all other pods whose priority is not lower, and
        what kube-scheduler has chosen already.
        """
        touched = tuple(touched)
        for other in self.touching(touched):
            if other.plan is not None and other.uid != uid and other.priority >= priority:
                yield from other.plan.planned
        for plan in self._reservations.touching(touched):
            if plan.pod_uid != uid and plan.pod_uid not in self._by_pod:
                yield from plan.planned

    def touching(self, touched: Iterable[Touched]) -> list[Hint]:
        """The hints whose plans touch any of these."""
        return [self._by_pod[uid] for uid in self._index.pods(touched)]

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_pod

    def __iter__(self) -> Iterator[Hint]:
        return iter(list(self._by_pod.values()))

    def __len__(self) -> int:
        return len(self._by_pod)
