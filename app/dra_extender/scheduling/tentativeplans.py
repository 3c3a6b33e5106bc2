"""Tentative plans between filter and bind. They influence the scores of other pods, and hold no devices.

kube-scheduler does not say which node it chose before it calls bind. Where the choice can be predicted (one node was
offered, one node has the best score, or the pod was nominated early), the plan for that node is remembered for a few
seconds, so that the next pod prefers a node where both fit. Bind decides again, so correctness does not depend on this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from sys import maxsize

import msgspec

from dra_extender.api.resource import AllocationResult, DeviceID, DeviceRequestAllocationResult, ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Planned
from dra_extender.devices.usage import PoolID
from dra_extender.scheduling.ports import Clock

Touched = PoolID | str
"""A pool, or the identity of a claim."""


class TentativePlan(msgspec.Struct, frozen=True, dict=True):
    """What the pod will probably take on the node: one allocation per claim. `priority`: of pods that are nominated
    early, which may be displaced.
    """

    pod_uid: str
    node: str
    claims: tuple[ResourceClaim, ...]
    allocations: tuple[AllocationResult, ...]
    priority: int = maxsize

    @property
    def planned(self) -> Iterator[Planned]:
        return zip(self.claims, self.allocations, strict=True)

    @cached_property
    def touched(self) -> frozenset[Touched]:
        """Its claims, and the pools of its devices."""
        return frozenset((*map(identity, self.claims), *(result.id[:2] for result in self.results)))

    @cached_property
    def results(self) -> Sequence[DeviceRequestAllocationResult]:
        return [result for allocation in self.allocations for result in allocation.devices.results]

    @cached_property
    def devices(self) -> frozenset[DeviceID]:
        """The devices that no other pod may have at the same time."""
        return frozenset(each.id for each in self.results if not each.admin_access and each.share_id is None)


class TentativePlans:
    """At most one tentative plan per pod, each for `seconds`; of more than `MOST` the oldest goes."""

    MOST = 1000

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._plans: dict[str, tuple[TentativePlan, float]] = {}
        """The oldest first, each with its end."""

    def put(self, plan: TentativePlan) -> None:
        uid = plan.pod_uid
        self.drop(uid)
        if len(self._plans) >= self.MOST:
            self.drop(next(iter(self._plans)))
        self._plans[uid] = plan, self._clock.monotonic() + self._seconds

    def drop(self, pod_uid: str) -> None:
        """The pod is being bound, was filtered again, or is gone."""
        self._plans.pop(pod_uid, None)

    def get(self, pod_uid: str) -> TentativePlan | None:
        self._expire()
        return self._plans.get(pod_uid, (None,))[0]

    def all(self) -> Sequence[TentativePlan]:
        """Those that have not ended, the oldest first."""
        self._expire()
        return [plan for plan, _ in self._plans.values()]

    def touching(self, touched: Iterable[Touched]) -> Sequence[TentativePlan]:
        """Those of them that touch any of these, the oldest first."""
        asked = frozenset(touched)
        return [plan for plan in self.all() if not asked.isdisjoint(plan.touched)]

    def others(self, pod_uid: str) -> dict[str, Sequence[TentativePlan]]:
        found: dict[str, list[TentativePlan]] = {}
        for plan in self.all():
            if plan.pod_uid != pod_uid:
                found.setdefault(plan.node, []).append(plan)
        return dict(found)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._plans and self._plans[oldest := next(iter(self._plans))][1] <= now:
            self.drop(oldest)
