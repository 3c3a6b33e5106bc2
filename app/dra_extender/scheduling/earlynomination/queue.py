"""The pods that kube-scheduler tries next, and which of them may be nominated now.

Promises
- Pods come in kube-scheduler's order: higher priority first, then longer waiting; a refused pod goes to the end of its
  priority.
- No more pods are offered than schedulers bind within the next seconds: a nomination that comes too late is a wasted
  write, one that comes too early is often wrong by then and keeps autoscalers from looking at the pod.
- Only eligible pods with devices and without gates are in the queue, so that others do not fill its front.
- Left out are pods that a scheduler is trying, pods that fit nowhere, and for a while pods that were nominated in vain.
- A pod loses nothing by its nomination. kube-scheduler compares no other node when a pod fits on its nominated node. So
  a pod that prefers some nodes over others is left to kube-scheduler. So is a pod with rules that only kube-scheduler
  can check: every early nomination of it would be a guess.
- The queue decides nothing about nodes or devices.

A pod waits since its creation, which is when kube-scheduler first sees it. A kube-scheduler that started later found
all pods at once and takes them in an unknown order: then it reaches some nominated pods late.

Rules: Kubernetes 1.36, pkg/scheduler/framework/plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from cachetools import LRUCache, TTLCache

from dra_extender.api.core import Affinity, Pod
from dra_extender.api.groups import group_of
from dra_extender.api.meta import parse_time
from dra_extender.scheduling.noderules import is_large
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses

SECONDS_AHEAD: Final = 3.0
MEASURED_SECONDS: Final = 2.0
UNKNOWN_RATE: Final = 128
"""Pods offered while no pod has been bound lately."""
LEAST: Final = 8
MOST: Final = 512

IMPROVED_SECONDS: Final = 1.0
SAME_SECONDS: Final = 5.0
"""A pod that fits nowhere is decided again after this time, or sooner when something has improved since."""

QUEUED_SECONDS: Final = 0.1
"""A newer pod is probably tried before it could be nominated."""
TRIED_SECONDS: Final = 5.0
"""A pod that was tried and not refused is about to be bound for this long."""
SCANNED: Final = 2 * MOST
"""Pods examined from the front of the queue, also pods that cannot be scheduled now."""
CALLERS: Final = 100
REMEMBERED: Final = 20_000
NO_AFFINITY: Final = Affinity()

_Place = tuple[int, float, int, str]
"""(priority, negative; waiting since, seconds; serial number; UID)"""


class WaitingPods:
    """The waiting pods by UID, in kube-scheduler's order."""

    def __init__(self) -> None:
        self._order: list[_Place] = []
        self._places: dict[str, _Place] = {}
        self._serial = 0

    def put(self, uid: str, priority: int, since: float) -> None:
        """The pod waits since then. A known pod keeps its place while its priority is the same."""
        known = self._places.get(uid)
        if known is not None and known[0] == -priority:
            return
        self.drop(uid)
        self._insert(uid, priority, since)

    def refused(self, uid: str, since: float) -> None:
        """The pod goes to the end: it waits since then."""
        known = self._places.get(uid)
        if known is not None:
            self.drop(uid)
            self._insert(uid, -known[0], since)

    def drop(self, uid: str) -> None:
        known = self._places.pop(uid, None)
        if known is not None:
            del self._order[bisect_left(self._order, known)]

    def first(self, count: int) -> Sequence[str]:
        return [uid for *_, uid in self._order[:count]]

    def since(self, uid: str) -> float:
        """When the pod began to wait. Raises KeyError when it does not wait."""
        return self._places[uid][1]

    def _insert(self, uid: str, priority: int, since: float) -> None:
        self._serial += 1
        place = (-priority, since, self._serial, uid)
        self._places[uid] = place
        insort(self._order, place)

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def __len__(self) -> int:
        return len(self._order)


class BindingRate:
    """How fast schedulers bind pods, and so how many pods ahead of the queue are worth a nomination."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bound: deque[float] = deque(maxlen=4 * MOST)

    def bound(self) -> None:
        self._bound.append(self._clock.monotonic())

    def ahead(self) -> int:
        """How many waiting pods to nominate at most, by the pods bound during the last `MEASURED_SECONDS`."""
        now = self._clock.monotonic()
        while self._bound and self._bound[0] < now - MEASURED_SECONDS:
            self._bound.popleft()
        if not self._bound:
            return UNKNOWN_RATE
        per_second = len(self._bound) / max(now - self._bound[0], 0.25)
        return max(LEAST, min(MOST, round(per_second * SECONDS_AHEAD)))


class EarlyNominationQueue:
    """The caller reports what happens to pods, and gets the pods to nominate next. `has_preempted`: returns True for
    pods that preemption has nominated.
    """

    def __init__(self, view: View, requeue: RequeueTrigger, has_preempted: Callable[[str], bool]) -> None:
        clock = view.clock
        self._view = view
        self._requeue = requeue
        self._has_preempted = has_preempted
        self._waiting = WaitingPods()
        self._rate = BindingRate(clock)
        self._useless: LRUCache[str, tuple[str, int, float]] = LRUCache(REMEMBERED)
        """By UID: the version of the pod that is not nominated, revision of the state, and when (monotonic seconds)."""
        self._pauses: Pauses[str] = Pauses(clock, view.config)
        self._tried: TTLCache[str, bool] = TTLCache(REMEMBERED, TRIED_SECONDS, timer=clock.monotonic)
        self._callers: set[str] = set()

    def waits(self, pod: Pod) -> None:
        """The watch shows the pod without a node."""
        ours = not self._view.config.scheduler_names or self._is_ours(pod)
        if ours and not pod.spec.scheduling_gates and self._may_be_eligible(pod):
            created = parse_time(pod.metadata.creation_timestamp or "") or self._view.clock.wall()
            self._waiting.put(pod.metadata.uid, pod.spec.priority, created.timestamp())

    def ended(self, uid: str, node: str) -> None:
        """The pod no longer waits: it is bound to the node, or gone when `node` is empty."""
        if node and uid in self._waiting:
            self._rate.bound()
        self._waiting.drop(uid)
        self._tried.pop(uid, None)

    def tried(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if len(self._callers) < CALLERS:
            self._callers.add(pod.spec.scheduler_name)
        self._tried[uid] = True

    def refused(self, uid: str) -> None:
        """A filter call has answered that the pod fits on no node."""
        self._tried.pop(uid, None)
        self._waiting.refused(uid, self._view.clock.wall().timestamp())

    def fits_nowhere(self, pod: Pod, revision: int) -> None:
        """The pod was found to fit on no node that is worth a nomination, on a state of this revision."""
        meta = pod.metadata
        self._useless[meta.uid] = meta.resource_version, revision, self._view.clock.monotonic()

    def outdated(self, pod: Pod) -> None:
        """The API server has another version of the pod, which the watch will bring."""
        self._useless[pod.metadata.uid] = pod.metadata.resource_version, 0, inf

    def failed(self, uid: str) -> None:
        """The pod was nominated in vain, or not tried in time."""
        self._pauses.failed(uid)

    def first(self) -> Sequence[Pod]:
        """The pods that are worth a nomination, in order; some of them may have one."""
        found: list[Pod] = []
        for uid in self._waiting.first(SCANNED):
            pod = self._view.pods.get(uid)
            if pod is None or uid in self._tried or uid in self._view.binding:
                continue
            if self._pauses.over(uid) and self._is_ours(pod) and not self._is_useless(pod):
                found.append(pod)
        return found[: self._rate.ahead()]

    def may_be_nominated(self, pod: Pod) -> bool:
        """True for an eligible pod that waits and is not being tried."""
        view, uid = self._view, pod.metadata.uid
        if uid not in self._waiting or uid in self._tried or uid in view.binding:
            return False
        if self._is_useless(pod) or not self._pauses.over(uid):
            return False
        if self._has_preempted(uid) or not self._may_be_eligible(pod):
            return False
        return view.clock.wall().timestamp() - self._waiting.since(uid) >= QUEUED_SECONDS

    def is_tried(self, uid: str) -> bool:
        """True when a scheduler asked about the pod within `TRIED_SECONDS` and was not refused."""
        return uid in self._tried

    def _may_be_eligible(self, pod: Pod) -> bool:
        return self._view.uses_devices(pod) and is_eligible(pod)

    def _is_useless(self, pod: Pod) -> bool:
        """True when the API server has another version of the pod, or it fitted nowhere a short while ago."""
        version, revision, at = self._useless.get(pod.metadata.uid, ("", 0, 0.0))
        if version != pod.metadata.resource_version:
            return False
        seconds = SAME_SECONDS if revision == self._requeue.revision else IMPROVED_SECONDS
        return self._view.clock.monotonic() - at < seconds

    def _is_ours(self, pod: Pod) -> bool:
        """True for pods of the configured schedulers or, when none is configured, of schedulers that have called."""
        return pod.spec.scheduler_name in (self._view.config.scheduler_names or self._callers)


def is_eligible(pod: Pod) -> bool:
    """True for a pod that waits for a node, prefers none, and has no rule that only kube-scheduler can check."""
    spec, status = pod.spec, pod.status
    if spec.node_name or pod.finished or pod.metadata.deletion_timestamp:
        return False
    if spec.scheduling_gates or status.nominated_node_name or group_of(pod) is not None or is_large(pod):
        return False
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return False
    affinity = spec.affinity or NO_AFFINITY
    between_pods = [rules for rules in (affinity.pod_affinity, affinity.pod_anti_affinity) if rules is not None]
    required = any(rules.required_during_scheduling_ignored_during_execution for rules in between_pods)
    preferring = [*between_pods, *((affinity.node_affinity,) if affinity.node_affinity is not None else ())]
    preferred = any(rules.preferred_during_scheduling_ignored_during_execution for rules in preferring)
    return not (spec.topology_spread_constraints or required or preferred)
