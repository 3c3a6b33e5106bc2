"""Pods that may preempt: filter refused them on every node because devices are missing.

Promises: preemption is evaluated for a new pod at once. It is evaluated again after a change that concerns the pod, but
not within `initial_backoff_seconds`, and after `max_backoff_seconds` in any case, unless the pod rests. An evaluation
that one call could not finish goes on after `initial_backoff_seconds`. Pods of higher priority come first, then pods
that have waited longer. Pods with the least recent lists of nodes are forgotten when all different lists together have
more than `NODES` names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from cachetools import LRUCache

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import KnownPods

NODES = 2_000_000


class Preemptor(msgspec.Struct):
    """A pod by UID, and the nodes where filter was asked and it lacks devices. `said`: the text of its last event."""

    uid: str
    names: frozenset[str]
    since: float
    revision: int
    considered: int = -1
    """The revision on which preemption was last evaluated, at `at` (monotonic seconds)."""
    at: float = 0.0
    said: str = ""
    avoid: dict[str, tuple[str, ...]] = {}
    """By node on which it waited in vain: the UIDs of the stuck victims."""
    evaluator: PreemptionEvaluator | None = None
    """The evaluation that needs another call; it began on the revision `begun`."""
    begun: int = 0

    def evaluation(self, terms: PreemptionTerms) -> PreemptionEvaluator:
        """The evaluation that needs another call, on the terms of now; otherwise a new one."""
        if self.evaluator is None:
            self.evaluator, self.begun = PreemptionEvaluator(terms, self.nodes(terms.stuck)), self.revision
        self.evaluator.terms = terms
        return self.evaluator

    def nodes(self, stuck: Collection[str]) -> Sequence[str]:
        """The nodes to evaluate, sorted; without nodes that it avoids while victims are stuck there."""
        self.avoid = {name: uids for name, uids in self.avoid.items() if any(uid in stuck for uid in uids)}
        return sorted(self.names - self.avoid.keys())


class Preemptors:
    """By UID of the pod."""

    def __init__(self, clock: Clock, config: SchedulingConfig, most_nodes: int = NODES) -> None:
        self._clock = clock
        self._config = config
        self._known: LRUCache[str, Preemptor] = LRUCache(config.remembered_pods)
        self._lists: LRUCache[frozenset[str], frozenset[str]] = LRUCache(most_nodes, getsizeof=len)

    def put(self, uid: str, names: Iterable[str], revision: int) -> None:
        """Filter refused the pod on all of these nodes, on a state of this revision."""
        listed = frozenset(names)
        forgets = listed not in self._lists and self._lists.currsize + len(listed) > self._lists.maxsize
        listed = self._lists.setdefault(listed, listed)
        known = self._known.get(uid)
        if known is None:
            self._known[uid] = Preemptor(uid, listed, self._clock.monotonic(), revision)
        else:
            known.names, known.revision = listed, revision
        for other in list(self._known.values()) if forgets else ():
            if other.names not in self._lists:
                self.drop(other.uid)

    def get(self, uid: str) -> Preemptor | None:
        known = self._known.get(uid)
        return known if known is not None and known.names else None

    def drop(self, uid: str) -> None:
        """The pod fits, is bound, or is gone."""
        self._known.pop(uid, None)

    def rest(self, uid: str) -> None:
        """Do not evaluate preemption for the pod until filter refuses it again."""
        known = self._known.get(uid)
        if known is not None:
            known.names, known.evaluator = frozenset(), None

    def avoid(self, uid: str, node: str, stuck: Sequence[str]) -> None:
        """The pod waited on the node in vain for these victims (UIDs)."""
        known = self._known.get(uid)
        if known is not None:
            known.avoid[node] = tuple(stuck)

    def due(self, pods: KnownPods) -> list[Preemptor]:
        found = [preemptor for preemptor in list(self._known.values()) if preemptor.names and self._is_due(preemptor)]
        priorities = {each.uid: pod.spec.priority for each in found if (pod := pods.get(each.uid)) is not None}
        return sorted(found, key=lambda each: (-priorities.get(each.uid, 0), each.since, each.uid))

    def _is_due(self, preemptor: Preemptor) -> bool:
        age = self._clock.monotonic() - preemptor.at
        if preemptor.considered < 0 or age >= self._config.max_backoff_seconds:
            return True
        return age >= self._config.initial_backoff_seconds and preemptor.revision > preemptor.considered

    def consider(self, preemptor: Preemptor, *, again: bool = False) -> None:
        """Preemption is evaluated now; `again`: evaluate it once more after `initial_backoff_seconds`."""
        preemptor.considered = (preemptor.revision if preemptor.evaluator is None else preemptor.begun) - again
        preemptor.at = self._clock.monotonic()
        if preemptor.evaluator is not None and not preemptor.evaluator.unfinished:
            preemptor.evaluator = None
