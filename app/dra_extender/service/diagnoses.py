"""Why pods wait, told on the pods: each that was refused is diagnosed after a while, and an event says what was found.

Pods that kube-scheduler keeps from all nodes before it asks the service are diagnosed as well, when they use devices or
extended resources, and their scheduler is one that is known to ask.

Promises: nothing of it is in the way of a verb. One pod is diagnosed at a time, the longest untold first, in steps
between which everything else goes on, and for a small share of the time only. An event is written when what it says
changes, not at every attempt, and at most once in `AGAIN` seconds per pod unless the rule is another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from cachetools import LRUCache

from dra_extender.api.core import Container, Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why.diagnose import diagnosing
from dra_extender.insight.why.note import Note, note_of
from dra_extender.insight.why.report import BindingRule, Diagnosis
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.slices import Slices, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

PERIOD: Final = 1.0
"""Seconds between two looks for pods, and between two diagnoses at least."""
AGAIN: Final = 60.0
REMEMBERED: Final = 20_000
PORTION: Final = 3_000
"""Pods, claims and containers that are looked at before others take their turn."""
_SHARE: Final = 20
"""The pause is at least so many times as long as the last diagnosis took."""

GRACE: Final = 5.0
"""Seconds that claims may come after their pods."""
MISSING: Final = "/"
"""The name of no claim."""
DEFAULT_SCHEDULER: Final = "default-scheduler"

Report = Callable[[Pod | ResourceClaim, str, str], object]
"""(what it is about, reason, note)"""


class _Told(msgspec.Struct):
    """What was said of a pod, when, and of which refusal."""

    generation: int
    found: BindingRule = ""
    """The rule that refuses it, told or not."""
    rule: BindingRule = ""
    note: Note | None = None
    at: float = -AGAIN
    looked: float = -AGAIN


class Diagnoses:
    """`refused`: by pod UID the generation of the state on which the pod was refused last."""

    def __init__(
        self,
        view: View,
        refused: Callable[[], Mapping[str, int]],
        report: Report,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._refused = refused
        self._report = report
        self._clock = clock
        self._told: LRUCache[str, _Told] = LRUCache(REMEMBERED)
        self._without: LRUCache[str, float] = LRUCache(REMEMBERED)
        """By UID: since when a pod has been without some of its claims."""
        self._kept: Mapping[str, int] = {}

    async def run(self) -> None:
        """Diagnose one pod after the other, until cancelled."""
        while True:
            started = self._clock()
            try:
                await self.look()
            except Exception as problem:
                unexpected("diagnosis", problem)
            await asyncio.sleep(max(PERIOD, _SHARE * (self._clock() - started)))

    async def look(self) -> Diagnosis | None:
        """Diagnose the pod that is next, and tell what is new. None when no pod is."""
        refused = await run(self._waiting())
        due = [uid for uid, generation in refused.items() if self._is_due(uid, generation)]
        pods = [pod for uid in due if (pod := self._view.pods.get(uid)) is not None and not pod.spec.node_name]
        if not pods:
            return None
        pod = min(pods, key=lambda pod: self._last(pod.metadata.uid))
        found = await run(diagnosing(self._view, pod))
        self._tell(pod, found, refused[pod.metadata.uid])
        return found

    def rule(self, uid: str) -> BindingRule:
        """The rule that refuses the pod, as it was found last; empty when nobody has looked."""
        told = self._told.get(uid)
        return told.found if told is not None else ""

    def waiting(self) -> Mapping[str, int]:
        """By UID the pods that wait, those among them that nobody is asked about as of the last look, with something
        that is another one when they were refused again.
        """
        return {**self._kept, **self._refused()}

    def _waiting(self) -> Slices[Mapping[str, int]]:
        """As of now; all pods are looked at, a portion at a time."""
        kept: dict[str, int] = {}
        looked = 0
        for pod in list(self._view.pods):
            if told := self._kept_away(pod):
                kept[pod.metadata.uid] = hash(told)
            looked += 1 + len(pod.spec.resource_claims) + len(pod.spec.containers)
            if looked >= PORTION:
                looked = 0
                yield
        self._kept = kept
        return self.waiting()

    def _kept_away(self, pod: Pod) -> str:
        """What kube-scheduler says of a pod that is none of others; empty for most."""
        if pod.spec.node_name or pod.finished or pod.metadata.deletion_timestamp:
            return ""
        if (pod.spec.scheduler_name or DEFAULT_SCHEDULER) not in self._view.config.scheduler_names:
            return ""
        if not pod.spec.resource_claims and not any(map(_asks_for_extended, pod.spec.containers)):
            return ""
        found = [item for item in pod.status.conditions if item.type == "PodScheduled"]
        if not found:
            return self._lacking(pod)
        return next((item.message for item in found if item.reason == "Unschedulable"), "")

    def _lacking(self, pod: Pod) -> str:
        """kube-scheduler does not even try pods without their claims, and says nothing of it."""
        created = created_names(pod)
        names = [entry.resource_claim_name or created.get(entry.name, MISSING) for entry in pod.spec.resource_claims]
        if all(not name or self._view.ledger.get(pod.metadata.namespace, name) is not None for name in names):
            return ""
        now, uid = self._clock(), pod.metadata.uid
        since = self._without.get(uid, now)
        self._without[uid] = since
        return "claims are missing" if now - since >= GRACE else ""

    def _is_due(self, uid: str, generation: int) -> bool:
        told = self._told.get(uid)
        return told is None or told.generation != generation

    def _last(self, uid: str) -> float:
        told = self._told.get(uid)
        return told.looked if told is not None else -AGAIN

    def _tell(self, pod: Pod, found: Diagnosis, generation: int) -> None:
        uid, now, note = pod.metadata.uid, self._clock(), note_of(found)
        told = self._told.get(uid) or _Told(generation)
        told.generation, told.found = generation, found.rule
        told.looked = now
        self._told[uid] = told
        if note is None or note == told.note or (found.rule == told.rule and now - told.at < AGAIN):
            return
        told.rule, told.note, told.at = found.rule, note, now
        self._report(pod, note.reason, note.text)
        namespace, _, name = note.claim.partition("/")
        claim = self._view.ledger.get(namespace, name) if note.claim else None
        if claim is not None:
            self._report(claim, note.reason, note.text)


def _asks_for_extended(container: Container) -> bool:
    """Whether the container asks for a resource that devices may stand behind."""
    return any("/" in name for name in container.resources.requests)
