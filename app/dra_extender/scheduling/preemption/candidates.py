"""The nodes on which preemption can help, and a lower bound of its cost on each.

Promises: pure; the allocator decides on hypothetical states. Devices that are kept for other pods count as in use, even
if those pods wait for the same claims that are gone in this state. `scan` evaluates many nodes together: the number of
decisions per node is the logarithm of the number of priorities. The work of `resolvable` does not grow with the
cluster; for nodes beyond its limits it answers that preemption may help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import msgspec

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.usage import DeviceUse, PoolID
from dra_extender.scheduling.feasibility import NodeStatuses, PreFilterState, node_statuses
from dra_extender.scheduling.noderules import Wants
from dra_extender.scheduling.preemption.budgets import violating
from dra_extender.scheduling.preemption.preemptible import (
    PreemptibleClaim,
    PreemptibleClaims,
    charge,
    preemptible_claims,
)
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View

PER_CLAIM: Final = 2
"""Units of work for removing a claim from a hypothetical state; one more for each device or share used in its pools."""
MOST_NODES: Final = 64
MOST_DEVICES: Final = 512
"""`resolvable` examines at most this many nodes, and devices or shares in use on them: a few milliseconds."""


def _shares(in_use: Iterable[DeviceUse]) -> int:
    """The number of devices in use; of a shared one, of its shares."""
    return sum(len(use.shares) or 1 for use in in_use)


def pools_seen(view: View, names: Iterable[str]) -> Iterable[PoolID]:
    return dict.fromkeys(pool for name in names for pool in view.cluster.inventory.pools_seen(name))


def without_claims(view: View, terms: PreemptionTerms, gone: Collection[ResourceClaim]) -> View:
    """The view once these claims are deallocated. Raises TurnSpent and Deferred."""
    now = view.overlay()
    others = (plan for plan in view.kept(terms.preemptor) if plan[0].metadata.uid not in terms.own)
    kept = [plan for plan in others if not now.is_decided(plan[0])]
    aside = [*gone, *(claim for claim, _ in kept)]  # kept plans are put back below, on the freed devices too
    charge(view, PER_CLAIM * len(aside))
    state = now.without(aside).holding(kept)
    charge(view, sum(_shares(view.ledger.in_use(pool).values()) for pool in state.touched))
    users = chain.from_iterable(map(view.users, gone)) if view.features.DRANodeAllocatableResources else ()
    leaving = view.leaving.union(pod.metadata.uid for pod in users if pod is not None)
    return msgspec.structs.replace(view.with_state(state), placement=None, leaving=leaving)


Candidate = tuple[int, int, str]
"""(budgets, priority, node): evictions help on the node. They violate at least so many budgets, and evict at least one
pod of at least this priority. The two numbers are a lower bound of `PreemptionCost`.
"""


class Scanned(msgspec.Struct, frozen=True):
    """`fits`: a node where the preemptor fits now; all else is then empty. `waits`: a node where it fits once
    terminating pods are gone. `unknown`: it may fit on other nodes; `doubtful`: evictions may help on other nodes; both
    have to be asked again later.
    """

    fits: str = ""
    waits: str = ""
    candidates: tuple[Candidate, ...] = ()
    unknown: bool = False
    doubtful: bool = False


def suited(view: View, terms: PreemptionTerms, names: Sequence[str]) -> Sequence[str]:
    """The nodes from which no rule of the node keeps the preemptor. Raises TurnSpent and Deferred."""
    if (usage := terms.usage) is None:
        return names
    wants, nodes, own = (Wants(terms.preemptor),), view.cluster.nodes, (terms.preemptor.metadata.uid,)
    charge(view, sum(wants[0].cost + len(usage.on(name)) for name in names))
    return [name for name in names if name in nodes and usage.suits(nodes[name], wants, own)]


def scan(view: View, prefiltered: PreFilterState, terms: PreemptionTerms, names: Sequence[str]) -> Scanned:
    """Evaluate these nodes. Raises TurnSpent and Deferred."""
    now = node_statuses(without_claims(view, terms, ()), prefiltered, names)
    if now.fits:
        return Scanned(fits=now.fits[0])
    found = preemptible_claims(view, terms, pools_seen(view, names), divisible=len(names) > 1)
    leaving = found.terminating
    soon = node_statuses(without_claims(view, terms, leaving), prefiltered, names) if leaving else now
    unknown = _is_open(now) or _is_open(soon)
    if soon.fits or not found.evictable:
        return Scanned(waits=next(iter(soon.fits), ""), unknown=unknown)
    return _Scan(view, prefiltered, terms, found).run(names, unknown=unknown)


def _is_open(statuses: NodeStatuses) -> bool:
    return statuses.waiting or bool(statuses.error)


@dataclass(eq=False)
class _Scan:
    """Finds, for nodes where the preemptor does not fit, the lowest priority up to which claims have to go."""

    _view: View
    _prefiltered: PreFilterState
    _terms: PreemptionTerms
    _found: PreemptibleClaims
    _doubtful: bool = False

    def run(self, names: Sequence[str], *, unknown: bool) -> Scanned:
        evictable = self._found.evictable
        protected = self._protected()
        harmless = [claim for claim in evictable if not any(pod.metadata.uid in protected for pod in claim.pods)]
        without = self._fits(names, harmless)
        candidates: list[Candidate] = [(0, priority, name) for name, priority in self._lowest(without, harmless)]
        if len(harmless) < len(evictable):
            helped = set(without)
            rest = self._fits([name for name in names if name not in helped], evictable)
            candidates += [(1, priority, name) for name, priority in self._lowest(rest, evictable)]
        return Scanned(candidates=tuple(candidates), unknown=unknown, doubtful=self._doubtful)

    def _protected(self) -> frozenset[str]:
        """The UIDs of pods whose eviction violates a budget even if no other pod is evicted."""
        budgets, found = self._terms.budgets, self._found
        alone = ((pod, violating((each,), budgets)) for pod in found.pods for each in found.with_all((pod,)))
        return frozenset(pod.metadata.uid for pod, violated in alone if violated)

    def _lowest(self, names: Sequence[str], claims: Sequence[PreemptibleClaim]) -> Iterator[tuple[str, int]]:
        """Each node, on all of which freeing `claims` helps, with the lowest priority up to which they have to go."""
        ranked = [(claim.priority, claim) for claim in claims]
        priorities = sorted({priority for priority, _ in ranked})
        if len(names) == 1:  # working out its victims costs no more
            yield names[0], priorities[0]
            return
        todo = [(list(names), 0, len(priorities) - 1)]
        while todo:
            group, low, high = todo.pop()
            if low == high:
                yield from ((name, priorities[low]) for name in group)
            elif group:
                middle = (low + high) // 2
                up_to = [claim for priority, claim in ranked if priority <= priorities[middle]]
                fits = self._fits(group, up_to)
                helped = set(fits)
                todo.append((fits, low, middle))
                todo.append(([name for name in group if name not in helped], middle + 1, high))

    def _fits(self, names: Sequence[str], claims: Collection[PreemptibleClaim]) -> list[str]:
        if not names or not claims:
            return []
        gone = [*self._found.terminating, *(each.claim for each in claims)]
        statuses = node_statuses(without_claims(self._view, self._terms, gone), self._prefiltered, names)
        self._doubtful = self._doubtful or _is_open(statuses)
        return statuses.fits


def resolvable(view: View, prefiltered: PreFilterState, terms: PreemptionTerms, names: Sequence[str]) -> frozenset[str]:
    """The nodes among these refusing ones where the pod fits, or may fit, once pods of lower priority are gone."""
    lowest = view.pods.lowest_priority
    if not terms.may_preempt or lowest is None or lowest >= terms.preemptor.spec.priority:
        return frozenset()
    examined = _within_limits(view, names)
    terms = terms.with_claims(prefiltered.order)
    try:
        found = preemptible_claims(view, terms, pools_seen(view, examined))
        gone = [*found.terminating, *(each.claim for each in found.evictable)]
        statuses = node_statuses(without_claims(view, terms, gone), prefiltered, examined) if gone else None
    except (TurnSpent, Deferred):
        return frozenset(names)
    helped = () if statuses is None else examined if statuses.waiting else statuses.fits
    return frozenset((*helped, *names[len(examined) :]))


def _within_limits(view: View, names: Sequence[str]) -> Sequence[str]:
    devices = 0
    for count, name in enumerate(names[:MOST_NODES]):
        pools = view.cluster.inventory.pools_seen(name)
        devices += sum(_shares(islice(view.ledger.in_use(pool).values(), MOST_DEVICES + 1)) for pool in pools)
        if devices > MOST_DEVICES:
            return names[:count]
    return names[:MOST_NODES]
