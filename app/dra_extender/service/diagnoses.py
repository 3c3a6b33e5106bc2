"""Diagnoses of pending pods: each refused pod is diagnosed after a while, and an event on the pod says why it waits.

This includes pods that kube-scheduler refuses before it calls the service, if they use devices or extended resources
and their scheduler is known to call the service.

Promises: diagnoses do not delay the verbs. One pod is diagnosed at a time, the one that has waited longest for it
first, in turns, and in a small share of the time. An event is written when its text changes, and at most once in
`REPORT_SECONDS` per pod unless another rule refuses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.report import BindingRule, Diagnosis
from dra_extender.insight.why.text import DiagnosisEvent, event_of
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

PERIOD: Final = 1.0
"""Minimum seconds between two diagnoses."""
REPORT_SECONDS: Final = 60.0
REMEMBERED: Final = 20_000
PORTION: Final = 3_000
"""Pods, claims and containers in one turn."""
_SHARE: Final = 20
"""The pause is at least this many times as long as the last diagnosis."""
CLAIM_SECONDS: Final = 5.0
"""How long the claims of a pod may be missing before the pod counts as pending for them."""
NO_CLAIM: Final = "/"
"""A name that no claim has."""
DEFAULT_SCHEDULER: Final = "default-scheduler"

Report = Callable[[Pod | ResourceClaim, str, str], object]
"""(object, reason, note)"""


class _Diagnosed(msgspec.Struct):
    """The last diagnosis of a pod, and the last event about it."""

    generation: int
    """The refusal that was diagnosed."""
    found: BindingRule = ""
    diagnosed: float = float("-inf")
    reported: BindingRule = ""
    event: DiagnosisEvent | None = None
    at: float = float("-inf")


class Diagnoses:
    """`refused`: by pod UID, the generation of the state in which the pod was refused last."""

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
        self._pods: LRUCache[str, _Diagnosed] = LRUCache(REMEMBERED)
        self._lacking_since: LRUCache[str, float] = LRUCache(REMEMBERED)
        """By UID: since when some claims of a pod are missing."""
        self._unasked: Mapping[str, int] = {}
        """Pending pods that kube-scheduler does not ask about, by UID."""

    async def run(self) -> None:
        """Diagnose one pod after the other, until cancelled."""
        while True:
            started = self._clock()
            try:
                await self.diagnose_next()
            except Exception as problem:
                unexpected("diagnosis", problem)
            await asyncio.sleep(max(PERIOD, _SHARE * (self._clock() - started)))

    async def diagnose_next(self) -> Diagnosis | None:
        """Diagnose the next pod and report what is new. None when no pod is due."""
        pending = await run(self._pending())
        due = [uid for uid, generation in pending.items() if self._is_due(uid, generation)]
        pods = [pod for uid in due if (pod := self._view.pods.get(uid)) is not None and not pod.spec.node_name]
        if not pods:
            return None
        pod = min(pods, key=lambda pod: self._last(pod.metadata.uid))
        found = await run(diagnosing(self._view, pod))
        self._record(pod, found, pending[pod.metadata.uid])
        return found

    def rule(self, uid: str) -> BindingRule:
        """The rule that refuses the pod, by its last diagnosis; empty when it has none."""
        known = self._pods.get(uid)
        return known.found if known is not None else ""

    def pending(self) -> Mapping[str, int]:
        """Pending pods by UID, with a number that changes when they are refused again. Pods that kube-scheduler does
        not ask about are those of the last search.
        """
        return {**self._unasked, **self._refused()}

    def _pending(self) -> Turns[Mapping[str, int]]:
        """`pending` after a new search."""
        unasked: dict[str, int] = {}
        examined = 0
        for pod in list(self._view.pods):
            if reason := self._refusal(pod):
                unasked[pod.metadata.uid] = hash(reason)
            examined += 1 + len(pod.spec.resource_claims) + len(pod.spec.containers)
            if examined >= PORTION:
                examined = 0
                yield
        self._unasked = unasked
        return self.pending()

    def _refusal(self, pod: Pod) -> str:
        """Why kube-scheduler refuses the pod without a call; empty for most pods."""
        spec = pod.spec
        if spec.node_name or pod.finished or pod.metadata.deletion_timestamp:
            return ""
        if (spec.scheduler_name or DEFAULT_SCHEDULER) not in self._view.config.scheduler_names:
            return ""
        # A name with a slash may be an extended resource, which devices can provide.
        if not spec.resource_claims and not any(
            "/" in name for each in spec.containers for name in each.resources.requests
        ):
            return ""
        found = [item for item in pod.status.conditions if item.type == "PodScheduled"]
        if not found:
            return self._missing_claims(pod)
        return next((item.message for item in found if item.reason == "Unschedulable"), "")

    def _missing_claims(self, pod: Pod) -> str:
        """kube-scheduler does not try a pod whose claims are missing, and sets no condition."""
        created = created_names(pod)
        names = [entry.resource_claim_name or created.get(entry.name, NO_CLAIM) for entry in pod.spec.resource_claims]
        if all(not name or self._view.ledger.get(pod.metadata.namespace, name) is not None for name in names):
            return ""
        now, uid = self._clock(), pod.metadata.uid
        since = self._lacking_since.get(uid, now)
        self._lacking_since[uid] = since
        return "claims are missing" if now - since >= CLAIM_SECONDS else ""

    def _is_due(self, uid: str, generation: int) -> bool:
        known = self._pods.get(uid)
        return known is None or known.generation != generation

    def _last(self, uid: str) -> float:
        known = self._pods.get(uid)
        return known.diagnosed if known is not None else float("-inf")

    def _record(self, pod: Pod, found: Diagnosis, generation: int) -> None:
        uid, now, event = pod.metadata.uid, self._clock(), event_of(found)
        known = self._pods.get(uid) or _Diagnosed(generation)
        known.generation, known.found, known.diagnosed = generation, found.rule, now
        self._pods[uid] = known
        if event is None or event == known.event or (found.rule == known.reported and now - known.at < REPORT_SECONDS):
            return
        known.reported, known.event, known.at = found.rule, event, now
        self._report(pod, event.reason, event.note)
        namespace, _, name = event.claim.partition("/")
        claim = self._view.ledger.get(namespace, name) if event.claim else None
        if claim is not None:
            self._report(claim, event.reason, event.note)
