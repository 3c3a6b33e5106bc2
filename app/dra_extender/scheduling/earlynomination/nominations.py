"""The pods that are nominated ahead of kube-scheduler's queue, and nominations that have to be removed.

Promises
- At most one early nomination per pod. The plan of a nominated pod is one of the `TentativePlans`: other pods take it
  into account, and it keeps no pod from being bound.
- A nomination that an earlier leader left on a pod is removed. The API server says who wrote it; what it cannot answer
  now is asked again.
- A removal is retried until it succeeds, unless the pod is bound, gone, or has another nomination. The write is for the
  very version of the pod that shows our nomination, so it never removes the nomination of another component.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.devices.overlay import Planned
from dra_extender.limits import PLANNED_OF_POOL
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Ports
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans, Touched
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses


class EarlyNomination(msgspec.Struct, kw_only=True):
    """The node that kube-scheduler is to try first for a pod. Times are monotonic seconds."""

    uid: str
    priority: int
    node: str
    plan: TentativePlan
    since: float
    checked: float
    """When the pod was last found to fit on the node."""
    seen: bool = False
    """True once the watch has shown the nomination on the pod."""
    of_gang: bool = False
    """The plan of a gang has the node for the pod, and holds the devices."""

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

    def put(self, nomination: EarlyNomination) -> None:
        self._by_pod[nomination.uid] = nomination
        self._tentative_plans.put(nomination.plan)

    def drop(self, uid: str) -> EarlyNomination | None:
        """Remove and return the pod's nomination."""
        nomination = self._by_pod.pop(uid, None)
        if nomination is not None:
            self._tentative_plans.drop(uid)
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
        touched = frozenset(touched)
        for other in self.touching(touched):
            if other.uid != uid and other.priority >= priority:
                yield from other.plan.planned
        for plan in self._tentative_plans.touching(touched):
            if plan.pod_uid != uid and plan.pod_uid not in self._by_pod:
                yield from plan.planned

    def touching(self, touched: Iterable[Touched]) -> list[EarlyNomination]:
        """The nominations whose plans touch any of these."""
        asked = frozenset(touched)
        return [each for each in self._by_pod.values() if not asked.isdisjoint(each.plan.touched)]

    def is_crowded(self, plan: TentativePlan) -> bool:
        """True if nominated pods have plans for `PLANNED_OF_POOL` devices of one of the plan's pools."""
        plans = (allocation for other in self.touching(plan.touched) for allocation in other.plan.allocations)
        planned: Counter[Touched] = Counter(
            result.id[:2] for allocation in plans for result in allocation.devices.results
        )
        return any(planned[pool] >= PLANNED_OF_POOL for pool in plan.touched & planned.keys())

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_pod

    def __iter__(self) -> Iterator[EarlyNomination]:
        return iter(list(self._by_pod.values()))

    def __len__(self) -> int:
        return len(self._by_pod)


log = structlog.get_logger(__name__)

CONCURRENT: Final = 16
"""Requests at the same time."""
PORTION: Final = 512
"""Pods examined in one turn of the event loop."""


class _Removal(msgspec.Struct, frozen=True):
    node: str
    due: float
    """When to remove it, monotonic seconds."""
    seen: bool
    """False: the watch has not shown the nomination, and may do so at any time."""
    ours: bool = True
    """False: unknown who nominated the pod."""


class PendingRemovals:
    """Nominations of ours that have to be removed from pods."""

    def __init__(self, view: View, ports: Ports) -> None:
        self._view = view
        self._ports = ports
        self._pending: dict[str, _Removal] = {}
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    def put(self, uid: str, node: str, *, after: float = 0.0, seen: bool = False) -> None:
        """Remove the pod's nomination for the node in `after` seconds, unless it is gone by then. `seen`: the watch has
        shown it; otherwise the removal waits until it does, and the pod is not nominated again.
        """
        self._pending[uid] = _Removal(node, self._view.clock.monotonic() + after, seen)
        self._pauses.forget(uid)

    async def put_all(self, has_preempted: Callable[[str], bool]) -> None:
        """Remove every nomination that this service has written, except those of preemption."""
        for number, pod in enumerate(self._view.pods, start=1):
            if number % PORTION == 0:
                await asyncio.sleep(0)
            uid, node = pod.metadata.uid, pod.status.nominated_node_name
            if node and not pod.spec.node_name and not has_preempted(uid):
                self._pending[uid] = _Removal(node, due=0.0, seen=True, ours=False)

    def drop(self, uid: str) -> None:
        """The pod has no nomination of ours, or can have none."""
        self._pending.pop(uid, None)

    def clear(self) -> None:
        """Another replica leads, and removes them."""
        self._pending.clear()

    async def work(self) -> None:
        due = [uid for uid, removal in self._pending.items() if self._view.clock.monotonic() >= removal.due]
        for start in range(0, len(due), CONCURRENT):
            await asyncio.gather(*map(self._remove, due[start : start + CONCURRENT]))

    async def _remove(self, uid: str) -> None:
        removal, view = self._pending.get(uid), self._view
        if removal is None or uid in view.binding or not self._pauses.over(uid):
            return
        pod = view.pods.get(uid)
        if pod is None or pod.spec.node_name:
            self._pending.pop(uid)
        elif pod.status.nominated_node_name != removal.node:
            if pod.status.nominated_node_name or removal.seen:
                self._pending.pop(uid)
        else:
            try:
                await self._send(pod, removal)
            except NotFoundError:
                pass
            except ConflictError:  # the watch will bring the newer version
                return
            except ApiError as error:
                self._pauses.failed(uid)
                log.warning("a nomination was not removed, will try again", pod=pod.metadata.key, error=repr(error))

    async def _send(self, pod: Pod, removal: _Removal) -> None:
        """Remove the nomination, or find out whose it is. Raises ApiError."""
        uid = pod.metadata.uid
        if not removal.ours and (node := await self._ports.nominated_ahead(pod)):
            self.put(uid, node, seen=node == removal.node)  # the watch may show an older one
            return
        if removal.ours:
            await self._ports.nominate_pod(pod, None)
        self._pending.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pending

    def __len__(self) -> int:
        return len(self._pending)
