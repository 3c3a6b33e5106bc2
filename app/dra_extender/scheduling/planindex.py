"""Plans of pods by the pools and claims that they touch.

Promises: an answer costs as much as the plans that touch what is asked about, however many others there are. Pods come
in the order in which they were put first.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.devices.usage import PoolID

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
