"""The pods that are nominated ahead of kube-scheduler's queue.

Promises: at most one early nomination per pod. The plan of a nominated pod is one of the `TentativePlans`: other
pods take it into account, and it keeps no pod from being bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.tentativeplans import PlanIndex, TentativePlan, TentativePlans, Touched


class EarlyNomination(msgspec.Struct, kw_only=True):
    """The node that kube-scheduler is to try first for a pod. Times are monotonic seconds."""

    uid: str
    priority: int
    node: str
    plan: TentativePlan | None
    """None: another replica wrote the nomination, and the plan is not decided again yet."""
    since: float
    checked: float
    """When the pod was last found to fit on the node."""
    seen: bool = False
    """True once the watch has shown the nomination on the pod."""

    def is_late(self, now: float, moved: float, config: SchedulingConfig) -> bool:
        """True when no scheduler has asked about any pod for too long (`moved`: the last time), or this pod waits for
        longer than `nominated_most_seconds`.
        """
        idle = now - max(self.since, moved) >= config.nominated_seconds
        return idle or now - self.since >= config.nominated_most_seconds


class EarlyNominations:
    """By UID of the pod."""

    def __init__(self, tentative_plans: TentativePlans) -> None:
        self._tentative_plans = tentative_plans
        self._by_pod: dict[str, EarlyNomination] = {}
        self._index = PlanIndex()

    def put(self, nomination: EarlyNomination) -> None:
        """Add the nomination, or replace its plan."""
        self._by_pod[nomination.uid] = nomination
        if nomination.plan is not None:
            self._tentative_plans.put(nomination.plan)
            self._index.put(nomination.uid, nomination.plan.claims, nomination.plan.allocations)

    def drop(self, uid: str) -> EarlyNomination | None:
        """Remove and return the pod's nomination."""
        nomination = self._by_pod.pop(uid, None)
        if nomination is not None:
            self._tentative_plans.drop(uid)
            self._index.drop(uid)
        return nomination

    def get(self, uid: str) -> EarlyNomination | None:
        return self._by_pod.get(uid)

    def clear(self) -> None:
        """Remove all, when another replica has led in between."""
        for uid in list(self._by_pod):
            self.drop(uid)

    def before(self, uid: str, priority: int, touched: Iterable[Touched]) -> Iterator[Planned]:
        """The plans that touch any of these and come before the pod: of nominated pods whose priority is not lower, and
        of pods for which kube-scheduler has already chosen a node.
        """
        touched = tuple(touched)
        for other in self.touching(touched):
            if other.plan is not None and other.uid != uid and other.priority >= priority:
                yield from other.plan.planned
        for plan in self._tentative_plans.touching(touched):
            if plan.pod_uid != uid and plan.pod_uid not in self._by_pod:
                yield from plan.planned

    def touching(self, touched: Iterable[Touched]) -> list[EarlyNomination]:
        """The nominations whose plans touch any of these."""
        return [self._by_pod[uid] for uid in self._index.pods(touched)]

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_pod

    def __iter__(self) -> Iterator[EarlyNomination]:
        return iter(list(self._by_pod.values()))

    def __len__(self) -> int:
        return len(self._by_pod)
