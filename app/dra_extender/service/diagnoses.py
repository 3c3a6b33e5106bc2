"""Diagnoses of pending pods: the service diagnoses each refused pod, and an event on the pod says why it waits.

This includes pods that kube-scheduler refuses before it calls the service, if they use devices or extended resources
and their scheduler is known to call the service.

Promises: diagnoses do not delay the verbs: they run one at a time, in turns, in a sixth of the time. The namespace
whose diagnoses have taken fewest turns is next. Pods that differ only in their names, their namespaces and the names of
their claims share a diagnosis. Pods of different namespaces share it only if its text names no object of these
namespaces. The service writes an event when its text changes, and at most once in `REPORT_SECONDS` per pod unless
another rule refuses the pod.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.decoding import encode
from dra_extender.api.resource import ResourceClaim
from dra_extender.fairqueue import FairQueue
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.redaction import in_namespace, redacted
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.statements import BindingRule
from dra_extender.insight.why.text import DiagnosisEvent, event_of
from dra_extender.insight.why.waiting import content_of, names_itself
from dra_extender.scheduling.claims import claim_names, created_names
from dra_extender.scheduling.noderules import parts_of
from dra_extender.scheduling.reader import Reader
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

PERIOD: Final = 1.0
"""Seconds between two searches for refused pods."""
REPORT_SECONDS: Final = 60.0
REMEMBERED: Final = 20_000
PORTION: Final = 3_000
"""Pods, claims and containers, with their amounts, in one turn."""
BYTES: Final = 2**19
"""Bytes of pods that are compared in one turn,"""
BYTES_OF_POD: Final = 2**13
"""and as how many more each pod counts, whose claims are looked up."""
SHARE: Final = 5
"""The pause after a diagnosis is this many times as long as the diagnosis."""
CLAIM_SECONDS: Final = 5.0
"""How long claims of a pod may be missing or being deleted before the pod counts as pending for them."""
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
    reported: BindingRule = ""
    event: DiagnosisEvent | None = None
    at: float = float("-inf")


@dataclass(eq=False)
class Diagnoses:
    """`_refused`: by pod UID, the generation of the state in which the pod was refused last."""

    _view: View
    _refused: Callable[[], Mapping[str, int]]
    _report: Report
    observe: Callable[[Pod, Diagnosis], object] = lambda *_: None
    """Called with each pod that was diagnosed, and the whole diagnosis."""
    clock: Callable[[], float] = time.monotonic
    _pods: LRUCache[str, _Diagnosed] = field(default_factory=lambda: LRUCache(REMEMBERED))
    _lacking_since: Mapping[str, float] = field(default_factory=dict)
    """By UID: since when some claims of a pod are missing or being deleted."""
    _unasked: Mapping[str, int] = field(default_factory=dict)
    """Pending pods that kube-scheduler does not ask about, by UID."""
    _queue: FairQueue[str] = field(default_factory=FairQueue)
    _queued: set[str] = field(default_factory=set)
    """UIDs of the pods in the queue."""
    _searched: float = float("-inf")

    async def run(self) -> None:
        """Diagnose one pod after the other, until cancelled."""
        while True:
            started, found = self.clock(), None
            try:
                found = await self.diagnose_next()
            except Exception as problem:
                unexpected("diagnosis", problem)
            pause = SHARE * (self.clock() - started)
            await asyncio.sleep(pause if found is not None else max(PERIOD, pause))

    async def diagnose_next(self) -> Diagnosis | None:
        """Diagnose the next pod, and report what is new about it and its like. None when no pod is due."""
        if not len(self._queue) or self.clock() - self._searched >= PERIOD:
            self._searched = self.clock()
            await run(self._search())
        while len(self._queue):
            uids = list(self._queue.take_alike())
            self._queued.difference_update(uids)
            if pods := [pod for uid in uids if (pod := self._view.pods.get(uid)) is not None and self._is_due(pod)]:
                return await run(self._diagnose(pods), partial(self._queue.charge, pods[0].metadata.namespace, 1))
        return None

    def rule(self, uid: str) -> BindingRule:
        """The rule that refuses the pod, by its last diagnosis; empty when it has none."""
        known = self._pods.get(uid)
        return known.found if known is not None else ""

    def pending(self) -> Mapping[str, int]:
        """Pending pods by UID, with a number that changes when they are refused again. Pods that kube-scheduler does
        not ask about are those of the last search.
        """
        return {**self._unasked, **self._refused()}

    def _search(self) -> Turns[None]:
        """Queue the pods that are due."""
        yield from self._find_unasked()
        size = 0
        for uid in self.pending():
            pod = self._view.pods.get(uid)
            if uid in self._queued or pod is None or not self._is_due(pod):
                size += BYTES // PORTION
            else:
                spec = encode(pod.spec)
                self._put(pod, (yield from content_of(self._view, pod, spec)))
                size += len(spec) + BYTES_OF_POD
            if size >= BYTES:
                size = 0
                yield

    def _put(self, pod: Pod, content: Hashable) -> None:
        self._queued.add(pod.metadata.uid)
        self._queue.put(pod.metadata.namespace, content, pod.metadata.uid)

    def _find_unasked(self) -> Turns[None]:
        """Find the pending pods that kube-scheduler does not ask about."""
        unasked, lacking = dict[str, int](), dict[str, float]()
        examined = 0
        for pod in list(self._view.pods):
            if reason := self._refusal(pod, lacking):
                unasked[pod.metadata.uid] = hash(reason)
            examined += 1 if pod.spec.node_name else 1 + parts_of(pod)
            if examined >= PORTION:
                examined = 0
                yield
        self._unasked, self._lacking_since = unasked, lacking

    def _refusal(self, pod: Pod, lacking: dict[str, float]) -> str:
        """Why kube-scheduler refuses the pod without a call; empty for most pods. `lacking`: see `_lacking_since`."""
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
            return self._missing_claims(pod, lacking)
        return next((item.message for item in found if item.reason == "Unschedulable"), "")

    def _missing_claims(self, pod: Pod, lacking: dict[str, float]) -> str:
        """kube-scheduler does not try a pod whose claims are missing or being deleted, and sets no condition."""
        created, get = created_names(pod), partial(self._view.ledger.get, pod.metadata.namespace)
        names = [entry.resource_claim_name or created.get(entry.name, NO_CLAIM) for entry in pod.spec.resource_claims]
        if all((claim := get(name)) is not None and not claim.metadata.deletion_timestamp for name in names if name):
            return ""
        now, uid = self.clock(), pod.metadata.uid
        since = lacking[uid] = self._lacking_since.get(uid, now)
        return "claims are missing" if now - since >= CLAIM_SECONDS else ""

    def _is_due(self, pod: Pod) -> bool:
        known, generation = self._pods.get(pod.metadata.uid), self._generation(pod)
        return not pod.spec.node_name and generation is not None and (known is None or known.generation != generation)

    def _generation(self, pod: Pod) -> int | None:
        uid = pod.metadata.uid
        return self._refused().get(uid, self._unasked.get(uid))

    def _diagnose(self, pods: Sequence[Pod]) -> Turns[Diagnosis]:
        """Diagnose the first of these pods for all of them."""
        first, generations = pods[0], [self._generation(pod) or 0 for pod in pods]
        home, config = first.metadata.namespace, self._view.config
        unredacted = yield from diagnosing(self._view, first)
        self.observe(first, unredacted)
        found = redacted(unredacted, config.reader(home))
        event = event_of(found)
        shared = event is None or not names_itself(first, event.note, found.rule)
        everywhere = shared and (event is None or _names_none_of(first, event, unredacted))
        events = {home: event}
        claims: dict[str, tuple[ResourceClaim, DiagnosisEvent]] = {}
        for pod, generation in zip(pods, generations, strict=True):
            namespace = pod.metadata.namespace
            if pod is not first and not (shared if namespace == home else everywhere):
                self._put(pod, (namespace, first.metadata.uid) if shared else pod.metadata.uid)
                continue
            if namespace not in events:
                events[namespace] = event_of(
                    redacted(in_namespace(unredacted, first, namespace), config.reader(namespace))
                )
            event = events[namespace]
            if self._record(pod, generation, found.rule, event) and event is not None:
                claim = self._blamed(event, first, pod)
                claims |= {claim.metadata.uid: (claim, event)} if claim is not None else {}
            yield
        for claim, told in claims.values():
            self._report(claim, told.reason, told.note)
        return found

    def _record(self, pod: Pod, generation: int, rule: BindingRule, event: DiagnosisEvent | None) -> bool:
        """True when the event is new and was written."""
        uid, now = pod.metadata.uid, self.clock()
        known = self._pods.get(uid) or _Diagnosed(generation)
        known.generation, known.found = generation, rule
        self._pods[uid] = known
        if event is None or event == known.event or (rule == known.reported and now - known.at < REPORT_SECONDS):
            return False
        known.reported, known.event, known.at = rule, event, now
        self._report(pod, event.reason, event.note)
        return True

    def _blamed(self, event: DiagnosisEvent, first: Pod, pod: Pod) -> ResourceClaim | None:
        """The claim of the pod that corresponds to the claim of the first pod that is the cause. None for a claim that
        was created for the pod, because the pod has the event.
        """
        name = event.claim.partition("/")[2]
        names = dict(zip(claim_names(first), claim_names(pod), strict=False))
        claim = self._view.ledger.get(pod.metadata.namespace, names.get(name, name if pod is first else ""))
        owner = claim.metadata.controller if claim is not None else None
        return claim if owner is None else None


def _names_none_of(pod: Pod, event: DiagnosisEvent, found: Diagnosis) -> bool:
    """True when the event names no object of the pod's namespace: a reader who sees no namespace reads the same."""
    seen = event_of(redacted(in_namespace(found, pod, ""), Reader("")))
    return pod.metadata.namespace not in event.note and event == seen
