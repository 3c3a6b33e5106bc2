"""The pods that kube-scheduler tries next, as far as a nomination is worth its write.

Promises
- Pods come in kube-scheduler's order: higher priority first, then longer waiting; a refused pod goes to the end of its
  priority.
- No more pods are offered than schedulers bind within the next seconds: a nomination that comes too late is a wasted
  write, one that comes too early is often wrong by then and keeps autoscalers from looking at the pod.
- Only eligible pods with devices are in the queue, so that others do not fill its front. Pods that a scheduler is
  trying, that fit nowhere, or that were nominated in vain a short while ago are left out.
- A pod loses nothing by its nomination: see `is_eligible`.

A pod waits since its creation. A kube-scheduler that started later takes the pods in an unknown order. Then all of them
are offered if they are few and soon bound, and hardly any otherwise.

Rules: Kubernetes 1.36, pkg/scheduler/framework/plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from cachetools import TTLCache

from dra_extender.api.core import Affinity, Pod
from dra_extender.api.groups import group_of
from dra_extender.api.meta import parse_time
from dra_extender.scheduling.noderules import is_large
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Backoffs

SECONDS_AHEAD: Final = 3.0
MEASURED_SECONDS: Final = 2.0
UNKNOWN_RATE: Final = 128
"""Pods offered while no pod has been bound lately."""
LEAST: Final = 8
MOST: Final = 512
SCANNED: Final = 2 * MOST
"""Pods examined from the front of the queue, also pods that cannot be scheduled now."""
IMPROVED_SECONDS: Final = 1.0
SAME_SECONDS: Final = 5.0
"""A pod that fits nowhere is decided again after this time, or sooner when something has improved since."""
QUEUED_SECONDS: Final = 0.1
"""A newer pod is probably tried before it could be nominated."""
TRIED_SECONDS: Final = 5.0
"""A pod that was tried and not refused is about to be bound for this long."""
REMEMBERED: Final = 20_000
EARLIER: Final = 0.8
"""Weight of all earlier calls when the order of a scheduler is compared with this one."""

_Place = tuple[int, float, int, str]
"""(priority, negative; waiting since, seconds; serial number; UID)"""


class EarlyNominationQueue:
    """The caller reports what happens to pods, and gets the pods to nominate next."""

    def __init__(self, view: View, requeue: RequeueTrigger) -> None:
        self._view = view
        self._requeue = requeue
        self._order: list[_Place] = []
        self._places: dict[str, _Place] = {}
        self._serial = 0
        self._bound: deque[float] = deque(maxlen=4 * MOST)
        """When pods of the queue were bound, monotonic seconds."""
        self._nowhere: dict[str, tuple[int, float]] = {}
        """By UID of a pod that fits nowhere: the revision of the state, and when (monotonic seconds)."""
        self._backoffs: Backoffs[str] = Backoffs(view.clock, view.config)
        self._tried: TTLCache[str, bool] = TTLCache(REMEMBERED, TRIED_SECONDS, timer=view.clock.monotonic)
        self._callers: set[str] = set()
        self._skipped = 0.0
        """How many pods a scheduler skipped when it tried a pod, on average of the last calls."""

    def waits(self, pod: Pod) -> None:
        """The watch shows the pod without a node. A known pod keeps its place while its priority is the same."""
        uid, priority = pod.metadata.uid, pod.spec.priority
        ours = not self._view.config.scheduler_names or self.is_ours(pod)
        if not (ours and self._view.uses_devices(pod) and is_eligible(pod)) or self._view.pods.is_terminating(uid):
            self._leave(uid)
        elif uid not in self._places or self._places[uid][0] != -priority:
            created = parse_time(pod.metadata.creation_timestamp or "") or self._view.clock.wall()
            self._enter(uid, -priority, created.timestamp())

    def ended(self, uid: str, node: str) -> None:
        """The pod no longer waits: it is bound to the node, or gone when `node` is empty."""
        if node and uid in self._places:
            self._bound.append(self._view.clock.monotonic())
        self._leave(uid)
        self._tried.pop(uid, None)

    def tried(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._callers.add(pod.spec.scheduler_name)
        if uid not in self._tried and uid in self._places:
            ahead = min(bisect_left(self._order, self._places[uid]), SCANNED)
            self._skipped = EARLIER * self._skipped + (1 - EARLIER) * ahead
        self._tried[uid] = True

    def refused(self, uid: str) -> None:
        """A filter call has answered that the pod fits on no node."""
        self._tried.pop(uid, None)
        if uid in self._places:
            self._enter(uid, self._places[uid][0], self._view.clock.wall().timestamp())

    def fits_nowhere(self, uid: str, revision: int = -1) -> None:
        """The pod has no node that is worth a nomination, on a state of this revision; -1: on an outdated state."""
        if uid in self._places:
            self._nowhere[uid] = revision, self._view.clock.monotonic()

    def failed(self, uid: str) -> None:
        """The pod was nominated in vain."""
        self._backoffs.failed(uid)

    def first(self) -> Sequence[Pod]:
        """The pods that are worth a nomination, in order; some of them may have one."""
        newest, most = self._view.clock.wall().timestamp() - QUEUED_SECONDS, self._ahead()
        found: list[Pod] = []
        for _, since, _, uid in self._order[:SCANNED]:
            if since <= newest and self.is_next(uid) and (pod := self._view.pods.get(uid)) and self.is_ours(pod):
                found.append(pod)
                if len(found) == most:
                    break
        return found

    def is_next(self, uid: str) -> bool:
        """True for a pod that waits, is not being tried, and has not failed a short while ago."""
        if uid not in self._places or uid in self._tried or uid in self._view.binding or not self._backoffs.over(uid):
            return False
        revision, at = self._nowhere.get(uid, (0, -SAME_SECONDS))
        seconds = SAME_SECONDS if revision == self._requeue.revision else IMPROVED_SECONDS
        return self._view.clock.monotonic() - at >= seconds

    def _ahead(self) -> int:
        """How many pods are bound in `SECONDS_AHEAD`, by those bound during the last `MEASURED_SECONDS`. While a
        scheduler takes pods from further behind: all that wait, if they are bound before their nominations end.
        """
        now = self._view.clock.monotonic()
        while self._bound and self._bound[0] < now - MEASURED_SECONDS:
            self._bound.popleft()
        if not self._bound:
            return UNKNOWN_RATE
        per_second = len(self._bound) / max(now - self._bound[0], 0.25)
        wanted, waiting = round(per_second * SECONDS_AHEAD), len(self._order)
        if self._skipped > wanted:
            wanted = waiting if waiting <= min(SCANNED, per_second * self._view.config.nominated_seconds) else LEAST
        return max(LEAST, min(MOST, wanted))

    def _enter(self, uid: str, priority: int, since: float) -> None:
        self._leave(uid)
        self._serial += 1
        place = self._places[uid] = priority, since, self._serial, uid
        insort(self._order, place)

    def _leave(self, uid: str) -> None:
        self._nowhere.pop(uid, None)
        if (place := self._places.pop(uid, None)) is not None:
            del self._order[bisect_left(self._order, place)]

    def is_ours(self, pod: Pod) -> bool:
        """True for pods of the configured schedulers or, when none is configured, of schedulers that have called."""
        return pod.spec.scheduler_name in (self._view.config.scheduler_names or self._callers)


def is_eligible(pod: Pod) -> bool:
    """True for a pod that waits for a node, prefers none, and has no rule that only kube-scheduler can check.

    kube-scheduler compares no other node when a pod fits on its nominated node, so pods with preferences are left to
    it. A nomination of a pod with rules that only kube-scheduler checks would be a guess.
    """
    spec, affinity = pod.spec, pod.spec.affinity or Affinity()
    if spec.node_name or pod.finished or pod.metadata.deletion_timestamp or spec.scheduling_gates:
        return False
    if group_of(pod) is not None or is_large(pod) or spec.topology_spread_constraints:
        return False
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return False
    between_pods = [rules for rules in (affinity.pod_affinity, affinity.pod_anti_affinity) if rules is not None]
    required = any(rules.required_during_scheduling_ignored_during_execution for rules in between_pods)
    preferring = [*between_pods, *((affinity.node_affinity,) if affinity.node_affinity is not None else ())]
    return not (required or any(rules.preferred_during_scheduling_ignored_during_execution for rules in preferring))
