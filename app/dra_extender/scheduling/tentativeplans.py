"""Tentative plans between filter and bind. They influence the scores of other pods, and hold no devices.

kube-scheduler does not say which node it chose before it calls bind. Where the choice can be predicted (one node was
offered, one node has the best score, or the pod was nominated early), the plan for that node is remembered for a few
seconds, so that the next pod prefers a node where both fit. Bind decides again, so correctness does not depend on this.

Promises: `PlanIndex` looks only at the plans that touch the pools and claims of a question, not at the others. It
returns pods in the order in which they were first put.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Planned
from dra_extender.devices.usage import PoolID
from dra_extender.scheduling.ports import Clock

Touched = PoolID | str
"""A pool, or the identity of a claim."""


class PlanIndex:
    """By UID of the pod."""

    def __init__(self) -> None:
        self._touched: dict[str, frozenset[Touched]] = {}
        self._number: dict[str, int] = {}
        self._pods: dict[Touched, set[str]] = {}
        self._next = 0

    def put(self, pod_uid: str, claims: Iterable[ResourceClaim], allocations: Iterable[AllocationResult]) -> None:
        """What the pod would take from now on, and for which claims."""
        touched: frozenset[Touched] = frozenset(
            chain(
                (result.id[:2] for allocation in allocations for result in allocation.devices.results),
                map(identity, claims),
            )
        )
        before = self._touched.get(pod_uid, frozenset())
        self._remove(pod_uid, before - touched)
        for key in touched - before:
            self._pods.setdefault(key, set()).add(pod_uid)
        self._touched[pod_uid] = touched
        if pod_uid not in self._number:
            self._number[pod_uid] = self._next
            self._next += 1

    def drop(self, pod_uid: str) -> None:
        """The pod has no plan any more."""
        self._remove(pod_uid, self._touched.pop(pod_uid, frozenset()))
        self._number.pop(pod_uid, None)

    def pods(self, touched: Iterable[Touched]) -> list[str]:
        """The pods whose plans touch any of these."""
        found = {uid for key in touched for uid in self._pods.get(key, ())}
        return sorted(found, key=self._number.__getitem__)

    def _remove(self, pod_uid: str, keys: frozenset[Touched]) -> None:
        for key in keys:
            pods = self._pods[key]
            pods.discard(pod_uid)
            if not pods:
                del self._pods[key]


class TentativePlan(msgspec.Struct, frozen=True):
    """What the pod will probably take on the node: one allocation per claim."""

    pod_uid: str
    node: str
    claims: tuple[ResourceClaim, ...]
    allocations: tuple[AllocationResult, ...]

    @property
    def planned(self) -> Iterator[Planned]:
        """Each claim with what it would get."""
        return zip(self.claims, self.allocations, strict=True)


class TentativePlans:
    """At most one tentative plan per pod, each for `seconds`; of more than `MOST` the oldest goes."""

    MOST = 1000

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._plans: dict[str, TentativePlan] = {}
        """The oldest first."""
        self._until: dict[str, float] = {}
        self._index = PlanIndex()

    def put(self, plan: TentativePlan) -> None:
        uid = plan.pod_uid
        self.drop(uid)
        if len(self._plans) >= self.MOST:
            self.drop(next(iter(self._plans)))
        self._plans[uid] = plan
        self._until[uid] = self._clock.monotonic() + self._seconds
        self._index.put(uid, plan.claims, plan.allocations)

    def drop(self, pod_uid: str) -> None:
        """The pod is being bound, was filtered again, or is gone."""
        if self._plans.pop(pod_uid, None) is not None:
            del self._until[pod_uid]
            self._index.drop(pod_uid)

    def get(self, pod_uid: str) -> TentativePlan | None:
        self._expire()
        return self._plans.get(pod_uid)

    def all(self) -> Sequence[TentativePlan]:
        """Those that have not ended, the oldest first."""
        self._expire()
        return list(self._plans.values())

    def touching(self, touched: Iterable[Touched]) -> Sequence[TentativePlan]:
        """Those of them that touch any of these."""
        self._expire()
        return [self._plans[uid] for uid in self._index.pods(touched)]

    def others(self, pod_uid: str) -> dict[str, Sequence[TentativePlan]]:
        """The plans of all other pods by node."""
        found: dict[str, list[TentativePlan]] = {}
        for plan in self.all():
            if plan.pod_uid != pod_uid:
                found.setdefault(plan.node, []).append(plan)
        return dict(found)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._plans and self._until[oldest := next(iter(self._plans))] <= now:
            self.drop(oldest)

    def __len__(self) -> int:
        self._expire()
        return len(self._plans)
