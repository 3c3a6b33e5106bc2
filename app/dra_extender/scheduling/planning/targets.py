"""The nodes on which pods of one kind may be tried, in turns.

Promises: all nodes are looked at once in `RENEWED_SECONDS` for each kind at most; in between a pod costs as many
decisions as nodes are tried for it. Nodes with a better score (an earlier alternative of a prioritized list) come
first. What is here is a guess: who takes a node from here decides again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from cachetools import LRUCache

from dra_extender.scheduling.ports import Clock

REMEMBERED: Final = 64
RENEWED_SECONDS: Final = 1.0
OLD_SECONDS: Final = 10.0
"""After this time there may be more nodes, even when nothing is known to have become free."""


class Targets:
    """Of one kind of pods: the nodes by score, the best first, and of equal ones those not used for longest."""

    def __init__(self, names: Sequence[str], scores: Mapping[str, int]) -> None:
        self._by_score: dict[int, deque[str]] = {}
        for name in names:
            self._by_score.setdefault(scores.get(name, 0), deque()).append(name)

    def best(self) -> Sequence[str]:
        """The nodes with the best score."""
        return list(self._by_score[max(self._by_score)]) if self._by_score else ()

    def drop(self, name: str) -> None:
        """Pods of the kind do not fit there any more."""
        for score, names in self._by_score.items():
            if name in names:
                names.remove(name)
                if not names:
                    del self._by_score[score]
                return

    def used(self, name: str) -> None:
        """One more pod is expected there: its equals come first."""
        for names in self._by_score.values():
            if name in names:
                names.remove(name)
                names.append(name)
                return

    def first(self) -> Iterator[str]:
        """The next node, again and again: `drop` it, or take it and be done."""
        while self._by_score:
            yield self._by_score[max(self._by_score)][0]

    def __len__(self) -> int:
        return sum(map(len, self._by_score.values()))


class TargetLists:
    """By kind: whatever tells pods apart to the nodes they fit on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: LRUCache[Hashable, tuple[Targets, float, int]] = LRUCache(REMEMBERED)

    def get(self, kind: Hashable, generation: int) -> Targets | None:
        """The nodes that are left of those found last; None when it is time to look for them."""
        found = self._known.get(kind)
        if found is None or (not len(found[0]) and self._is_worth_a_look(found[1], generation > found[2])):
            return None
        return found[0]

    def put(self, kind: Hashable, names: Sequence[str], scores: Mapping[str, int], generation: int) -> Targets:
        """They were found just now, on a state of this generation."""
        targets = Targets(names, scores)
        self._known[kind] = targets, self._clock.monotonic(), generation
        return targets

    def clear(self) -> None:
        """What was expected somewhere is not any more: nodes that were left out may do again."""
        self._known.clear()

    def _is_worth_a_look(self, at: float, improved: bool) -> bool:
        age = self._clock.monotonic() - at
        return age >= (RENEWED_SECONDS if improved else OLD_SECONDS)
