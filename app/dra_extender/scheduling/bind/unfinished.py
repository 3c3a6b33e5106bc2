"""Binds that failed and could not take everything back: remembered, reported, and tried again slowly.

The API server refuses (a permission was taken away), does not answer for long, or answers what cannot be decoded: then
the way back of a bind ends where it is, the answer is given, and what is left to do stands here.

Promises: what such a bind may have written stays accounted for, so nothing of it is given twice; each is reported once
(log, event, metric) and listed as a problem as long as it lasts; it goes on as soon as the watch shows a change of its
pod or claims, and otherwise after pauses that double up to a limit. A process that ends forgets them, as a crash does:
the claims are then leftovers like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from dra_extender.api.meta import ObjectKey
from dra_extender.devices.problems import Problem
from dra_extender.scheduling.bind.failure import Undecided
from dra_extender.scheduling.bind.retry import RetryPolicy
from dra_extender.scheduling.bind.rollback import Rollback
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import UNDOS_PUT_OFF
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.ports import Clock, Messenger, Observer
from dra_extender.scheduling.view import KnownPods

log = structlog.get_logger(__name__)


class _Entry:
    def __init__(self, number: int, way: Rollback, why: Undecided) -> None:
        self.number = number
        self.way = way
        self.why = why
        self.state = way.state


class Unfinished:
    """`put` once per bind, `work` about once a second."""

    def __init__(
        self, pods: KnownPods, messenger: Messenger, clock: Clock, config: SchedulingConfig, observer: Observer
    ) -> None:
        self._pods = pods
        self._messenger = messenger
        self._clock = clock
        self._config = config
        self._observer = observer
        self._entries: dict[int, _Entry] = {}
        self._pauses: Pauses[int] = Pauses(clock, config)
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, pod_uid: str) -> bool:
        """True when a bind of the pod is among them."""
        return any(entry.way.pod.uid == pod_uid for entry in self._entries.values())

    @property
    def problems(self) -> Sequence[Problem]:
        """One per bind: what stands in its way, and what to do."""
        return [_problem(entry) for entry in self._entries.values()]

    def put(self, way: Rollback, why: Undecided) -> None:
        """The way back of a bind has come to an end before its end."""
        self._serial += 1
        self._entries[self._serial] = _Entry(self._serial, way, why)
        self._pauses.failed(self._serial)
        self._observer.count(UNDOS_PUT_OFF, why.reason)
        log.warning("what a bind wrote is not taken back yet", pod=way.pod.key, claims=way.claims, why=why.text)
        pod = self._pods.get(way.pod.uid)
        if pod is not None:
            note = f"not bound, and what was written for it is not taken back yet: {why.text}"
            self._messenger.record_event(pod, "Warning", "DevicesHeld", note)

    async def work(self) -> None:
        """Go on with those that are due. When the API server does not answer one, the others wait as well."""
        for entry in list(self._entries.values()):
            if not entry.way.open or (entry.way.state == entry.state and not self._pauses.over(entry.number)):
                continue
            entry.state = entry.way.state
            try:
                bound = await entry.way.go(RetryPolicy(until=self._clock.monotonic(), refusals=1))
            except Undecided as why:
                entry.why = why
                self._pauses.failed(entry.number)
                if why.reason == "unanswered":
                    return
                continue
            del self._entries[entry.number]
            self._pauses.forget(entry.number)
            what = "its pod is bound" if bound else "taken back, or somebody else's by now"
            log.info("what a bind wrote is settled after all", pod=entry.way.pod.key, how=what)


def _problem(entry: _Entry) -> Problem:
    way = entry.way
    claims = ", ".join(way.claims)
    what = f"a bind has failed ({way.problem.text}) and could not take back what it wrote to {claims}: {entry.why.text}"
    return Problem(ObjectKey("Pod", way.pod.key), what, _ADVICE[entry.why.reason])


_ADVICE = {
    "refused": "grant the permission again, as manifests/rbac does; the devices stay held until then",
    "undecodable": "correct or delete the claim or pod; the devices stay held until then",
    "unanswered": "see that the API server can be reached; the devices stay held until then",
}
