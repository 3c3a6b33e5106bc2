"""What some nodes have to offer a preemptor, found for all of them together.

Promises: pure. Of a node where evictions would help a candidate says how little it can cost at best; of the others
nothing. A node's answer takes as many questions as the logarithm of the different priorities there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.feasibility import NodeStatuses, PreFilterState
from dra_extender.scheduling.preemption.budgets import Grouped, violating
from dra_extender.scheduling.preemption.occupants import Occupant, Occupants, occupants_of
from dra_extender.scheduling.preemption.state import fitting
from dra_extender.scheduling.preemption.terms import Terms
from dra_extender.scheduling.view import View


class Candidate(msgspec.Struct, frozen=True):
    """A node where evictions would help. At least so many `violations` of budgets, and among the victims one of at
    least this `priority`.
    """

    node: str
    violations: int
    priority: int


class Scanned(msgspec.Struct, frozen=True):
    """`fits`: a node where the preemptor fits already; then nothing else is said. `waits`: where it will, as pods are
    going. `unknown`: it may fit on other nodes; `doubtful`: evictions may help on other nodes; nobody can say yet.
    """

    fits: str = ""
    waits: str = ""
    candidates: tuple[Candidate, ...] = ()
    unknown: bool = False
    doubtful: bool = False


def scan(view: View, prefiltered: PreFilterState, terms: Terms, names: Sequence[str]) -> Scanned:
    """Look at these nodes. Raises TurnSpent and Deferred."""
    now = fitting(view, prefiltered, terms, names, ())
    if now.fits:
        return Scanned(fits=now.fits[0])
    pools = dict.fromkeys(pool for name in names for pool in view.cluster.inventory.pools_seen(name))
    found = occupants_of(view, terms, pools)
    soon = fitting(view, prefiltered, terms, names, found.going) if found.going else now
    unknown = _is_open(now) or _is_open(soon)
    if soon.fits or not found.evictable:
        return Scanned(waits=next(iter(soon.fits), ""), unknown=unknown)
    return _Levels(view, prefiltered, terms, found).scanned(names, unknown=unknown)


def _is_open(statuses: NodeStatuses) -> bool:
    return statuses.waiting or bool(statuses.error)


class _Levels:
    """The nodes by how little it costs at best."""

    def __init__(self, view: View, prefiltered: PreFilterState, terms: Terms, found: Occupants) -> None:
        self._view = view
        self._subject = prefiltered
        self._terms = terms
        self._found = found
        self._budgets = Grouped(terms.budgets)
        self._doubtful = False

    def scanned(self, names: Sequence[str], *, unknown: bool) -> Scanned:
        occupants = self._found.evictable
        harmless = [occupant for occupant in occupants if not self._violates(occupant)]
        without = self._fits(names, harmless)
        candidates = [Candidate(name, 0, priority) for name, priority in self._at_least(without, harmless)]
        if len(harmless) < len(occupants):
            kept = set(without)
            helped = self._fits([name for name in names if name not in kept], occupants)
            candidates += [Candidate(name, 1, priority) for name, priority in self._at_least(helped, occupants)]
        return Scanned(candidates=tuple(candidates), unknown=unknown, doubtful=self._doubtful)

    def _violates(self, occupant: Occupant) -> bool:
        """True when a budget is violated even if nobody else is evicted."""
        return any(violating((pod,), self._budgets.of(pod)) for pod in occupant.pods)

    def _at_least(self, names: Sequence[str], occupants: Sequence[Occupant]) -> Iterator[tuple[str, int]]:
        """These nodes, where taking all occupants away helps, with the lowest priority up to which they have to go."""
        priorities = sorted({occupant.priority for occupant in occupants})
        if len(names) == 1:  # its victims are worked out as fast
            yield names[0], priorities[0]
            return
        todo = [(list(names), 0, len(priorities) - 1)]
        while todo:
            group, low, high = todo.pop()
            if low == high:
                yield from ((name, priorities[low]) for name in group)
            elif group:
                middle = (low + high) // 2
                up_to = [occupant for occupant in occupants if occupant.priority <= priorities[middle]]
                fits = self._fits(group, up_to)
                kept = set(fits)
                todo.append((fits, low, middle))
                todo.append(([name for name in group if name not in kept], middle + 1, high))

    def _fits(self, names: Sequence[str], occupants: Collection[Occupant]) -> list[str]:
        gone: list[ResourceClaim] = [*self._found.going, *(occupant.claim for occupant in occupants)]
        if not names or not occupants:
            return []
        statuses = fitting(self._view, self._subject, self._terms, names, gone)
        self._doubtful = self._doubtful or _is_open(statuses)
        return statuses.fits
