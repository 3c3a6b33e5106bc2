"""The pods that are nominated ahead of kube-scheduler's queue, and nominations that have to be confirmed or removed.

Promises
- At most one early nomination per pod. The plan of a nominated pod is one of the `TentativePlans`: other pods take it
  into account, and it keeps no pod from being bound.
- A nomination that this service wrote, or may have written, is found again when the watch shows it: after a restart,
  after a write with unknown outcome, and when the answer to a write concerned a later attempt. The API server says who
  wrote it; what it cannot answer now is asked again.
- A removal is retried until it succeeds, unless the pod is bound, gone, or has another nomination. The write is for the
  very version of the pod that shows our nomination, so it never removes the nomination of another component.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import PodWriter
from dra_extender.scheduling.tentativeplans import PlanIndex, TentativePlan, TentativePlans, Touched
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses


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


log = structlog.get_logger(__name__)

CONCURRENT: Final = 16
"""Requests at the same time."""
PORTION: Final = 512
"""Pods examined in one turn of the event loop."""
REMEMBERED: Final = 20_000
UNSEEN_SECONDS: Final = 5.0
"""The watch shows a stored nomination within this time."""


class Unconfirmed:
    """Pods whose nomination may be ours although they have no `EarlyNomination`. `has_preempted`: True for pods
    that preemption has nominated.
    """

    def __init__(self, view: View, ports: PodWriter, has_preempted: Callable[[str], bool]) -> None:
        self._view = view
        self._ports = ports
        self._has_preempted = has_preempted
        self._written: LRUCache[tuple[str, str], bool] = LRUCache(REMEMBERED)
        """UID and node of each nomination that was written, or may have been."""
        self._open: dict[str, None] = {}
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    def wrote(self, uid: str, node: str) -> None:
        """A write is being sent."""
        self._written[uid, node] = True

    def seen(self, pod: Pod) -> None:
        """The watch shows a pod without an `EarlyNomination`."""
        node = pod.status.nominated_node_name
        if (pod.metadata.uid, node) in self._written:
            self._open[pod.metadata.uid] = None

    async def add_all(self) -> None:
        """Every nomination in the cluster has to be confirmed, except those of preemption."""
        for number, pod in enumerate(self._view.pods, start=1):
            if number % PORTION == 0:
                await asyncio.sleep(0)
            if pod.status.nominated_node_name and not pod.spec.node_name and not self._has_preempted(pod.metadata.uid):
                self._open[pod.metadata.uid] = None

    def drop(self, uid: str) -> None:
        """The pod no longer waits."""
        self._open.pop(uid, None)

    def clear(self) -> None:
        """Another replica has led in between and may have written anything."""
        self._open.clear()

    async def confirm(self) -> list[Pod]:
        """The pods whose nomination is confirmed as ours. Pods that cannot be asked about yet stay unconfirmed."""
        due = [uid for uid in self._open if self._pauses.over(uid)]
        found: list[Pod] = []
        for start in range(0, len(due), CONCURRENT):
            pods = await asyncio.gather(*map(self._confirm, due[start : start + CONCURRENT]))
            found += [pod for pod in pods if pod is not None]
        return found

    async def _confirm(self, uid: str) -> Pod | None:
        pod = self._view.pods.get(uid)
        if pod is None or pod.spec.node_name or not pod.status.nominated_node_name or self._has_preempted(uid):
            self.drop(uid)
            return None
        try:
            node = await self._ports.nominated_ahead(pod)
        except ApiError as error:
            self._pauses.failed(uid)
            log.info("unknown who nominated a pod, will ask again", pod=pod.metadata.key, error=repr(error))
            return None
        self._pauses.forget(uid)
        self.drop(uid)
        if node:
            self._written[uid, node] = True  # the watch may show an older one
        return pod if node == pod.status.nominated_node_name else None

    def __len__(self) -> int:
        return len(self._open)


class _Removal(msgspec.Struct, frozen=True):
    node: str
    due: float
    until: float
    """The nomination may still show up until then (monotonic seconds)."""


class PendingRemovals:
    """Nominations of ours that have to be removed from pods."""

    def __init__(self, view: View, ports: PodWriter) -> None:
        self._view = view
        self._ports = ports
        self._pending: dict[str, _Removal] = {}
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)

    def put(self, uid: str, node: str, *, after: float = 0.0, unknown_outcome: bool = False) -> None:
        """Remove the pod's nomination for the node in `after` seconds, unless it is gone by then. `unknown_outcome`:
        the write may be stored later.
        """
        now = self._view.clock.monotonic() + after
        seconds = self._view.config.doubt_seconds if unknown_outcome else UNSEEN_SECONDS
        self._pending[uid] = _Removal(node, now, now + seconds)
        self._pauses.forget(uid)

    def drop(self, uid: str) -> None:
        """The pod has a new nomination of ours, or can have none."""
        self._pending.pop(uid, None)

    def clear(self) -> None:
        """Another replica leads, and removes them."""
        self._pending.clear()

    async def work(self) -> None:
        """Remove what is due."""
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
            if pod.status.nominated_node_name or view.clock.monotonic() >= removal.until:
                self._pending.pop(uid)
        else:
            try:
                await self._ports.nominate_pod(pod, None)
            except NotFoundError:
                self._pending.pop(uid, None)
            except ConflictError:  # the watch will bring the newer version
                return
            except ApiError as error:
                self._pauses.failed(uid)
                log.warning("a nomination was not removed, will try again", pod=pod.metadata.key, error=repr(error))
            else:
                self._pending.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pending

    def __len__(self) -> int:
        return len(self._pending)
