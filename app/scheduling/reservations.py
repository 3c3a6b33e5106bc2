"""Tentative plans between filter and bind: hints for other pods, never a promise of a device.

kube-scheduler does not say which node it chose before it calls bind. Where that can be guessed (one node was left, or
one was scored best, or the pod was nominated for one ahead of the queue), the plan for it is remembered for a few
seconds, so that the next pod prefers a node where both fit.
Correctness does not depend on any of this: bind decides again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from cachetools import TTLCache

from app.api.resource import AllocationResult, ResourceClaim
from app.devices.overlay import Planned
from app.scheduling.ports import Clock


class Tentative(msgspec.Struct, frozen=True):
    """What the pod will probably take on the node: one allocation per claim."""

    pod_uid: str
    node: str
    claims: tuple[ResourceClaim, ...]
    allocations: tuple[AllocationResult, ...]

    @property
    def planned(self) -> Iterator[Planned]:
        """Each claim with what it would get."""
        return zip(self.claims, self.allocations, strict=True)


class Reservations:
    """At most one tentative plan per pod, each for `seconds`."""

    MOST = 1000

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._plans: TTLCache[str, Tentative] = TTLCache(self.MOST, seconds, timer=clock.monotonic)

    def put(self, plan: Tentative) -> None:
        self._plans[plan.pod_uid] = plan

    def drop(self, pod_uid: str) -> None:
        """The pod is being bound, filtered anew, not expected there any more, or gone."""
        self._plans.pop(pod_uid, None)

    def get(self, pod_uid: str) -> Tentative | None:
        return self._plans.get(pod_uid)

    def all(self) -> Sequence[Tentative]:
        """Those that have not ended, the oldest first."""
        return list(self._plans.values())

    def others(self, pod_uid: str) -> dict[str, Sequence[Tentative]]:
        """The plans of all other pods by node."""
        if not self._plans:
            return {}
        found: dict[str, list[Tentative]] = {}
        for plan in list(self._plans.values()):
            if plan.pod_uid != pod_uid:
                found.setdefault(plan.node, []).append(plan)
        return dict(found)

    def __len__(self) -> int:
        return len(self._plans)
