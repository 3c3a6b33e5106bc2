"""Which pods a gang should preempt so that enough of its pods fit together: the joint decision on hypothetical states.

Promises
- A question: it changes nothing. `GangVictims` are found in turns, and decided on again on the state of the last turn:
  no pod is evicted for a plan that does not exist.
- The victims let as many pods fit as the gang needs, not more. Each one is necessary. Of pods with equal priority those
  go that have most devices, on nodes where fewest pods can go. If at most `SETS` sets have no more pods than these, the
  set of least `cost` is taken; that is always so in a small cluster.
- Victims are looked for among the pods of `VICTIMS_OF_GANG` claims: on nodes with the lowest priorities.

Rules: as for a pod alone. Kubernetes 1.37 (DefaultPreemption for groups) puts victims back in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, combinations, islice
from typing import Final

import msgspec

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod
from dra_extender.api.groups import GroupKey
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Planned
from dra_extender.limits import VICTIMS_OF_GANG
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.extended import synthetic_uid
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.gangs.decision import GangState, decide
from dra_extender.scheduling.gangs.gang import Gang, gang_with_devices
from dra_extender.scheduling.gangs.joint import Place
from dra_extender.scheduling.preemption.candidates import pools_seen, suited, without_claims
from dra_extender.scheduling.preemption.preemptible import PreemptibleClaims, charge, preemptible_claims
from dra_extender.scheduling.preemption.terms import (
    FITS,
    HOPELESS,
    UNKNOWN,
    WAITS,
    NoPreemption,
    Preemption,
    PreemptionTerms,
    Victim,
)
from dra_extender.scheduling.preemption.victims import Fits, Trials, as_victims, cost, fewest
from dra_extender.scheduling.view import View

SETS: Final = 128
"""If so few sets of pods may be the victims, the one of least cost is taken."""
PER_POD: Final = 60
"""Units of work to examine a pod of the gang, besides what a decision without victims charges."""

Places = Mapping[str, Place]
PlacesWithout = tuple[tuple[ResourceClaim, ...], Places]
"""Claims, and where the pods fit once these are deallocated."""


class Joint(msgspec.Struct, frozen=True):
    """The joint decisions about one gang on the state of one turn. `terms` name one of its pods."""

    gang: Gang
    prefiltered: PreFilterState
    terms: PreemptionTerms
    state: GangState

    def places(self, names: Sequence[str], gone: Collection[ResourceClaim]) -> Places | None:
        """Where the pods fit, the one of the terms on one of these nodes, once the claims are deallocated and the pods
        that used them are gone; None if too few fit. Raises TurnSpent and Deferred.
        """
        charge(self.state.free, PER_POD * len(self.gang.waiting))
        leaving = self.terms.terminating.union(entry.uid for claim in gone for entry in claim.status.reserved_for)
        used = self.state.used
        state = msgspec.structs.replace(
            self.state,
            free=without_claims(self.state.free, self.terms, gone),
            used=lambda node, own: used(node, own | leaving),
            places={},
            offered=(),
            hypothesis=(tuple(names), frozenset(claim.metadata.uid for claim in gone)),
        )
        found = decide(state.free, self.gang, self.prefiltered, names, state)
        if found.waiting or found.error:
            raise Deferred(found.reason or found.error)
        state.free.decisions.budget.settle()
        return found.places


def joint(view: View, prefiltered: PreFilterState, terms: PreemptionTerms, gang: Gang | None) -> Joint:
    """The decisions about the gang of the preemptor, which is a gang by itself if it has no other. Raises TurnSpent and
    Deferred.
    """
    pod = terms.preemptor
    gang = gang or Gang(GroupKey("gang", pod.metadata.namespace, ""), 1, waiting=(pod,))
    own = [claim for each in gang.waiting for claim in known_claims(each, view.ledger)]
    charge(view, len(own))
    uids = (*(claim.metadata.uid for claim in own), *map(synthetic_uid, gang.waiting))
    terms = msgspec.structs.replace(terms, own=frozenset(uids))
    return Joint(gang, prefiltered, terms, terms.state_of(view, gang, pod))


def placed_without(
    view: View, terms: PreemptionTerms, names: Sequence[str], *, leaving: bool, unknown: PlacesWithout | None = None
) -> PlacesWithout | None:
    """Where the preemptor fits with its gang, itself on one of these nodes; None if it does not. `leaving`: once pods
    that terminate there are gone, whose claims are in the answer too. `unknown`: the answer if this cannot be decided
    now. Raises TurnSpent.
    """
    try:
        prefiltered = pre_filter(view, terms.preemptor)
        if not isinstance(prefiltered, PreFilterState):
            return None
        decisions = joint(view, prefiltered, terms, gang_with_devices(view, terms.preemptor))
        names = names if leaving else suited(view, terms, names)
        pools = pools_seen(view, names if leaving else ())
        gone = preemptible_claims(view, decisions.terms, pools).terminating
        places = decisions.places(names, gone)
    except Deferred:
        return unknown
    return (gone, places) if places is not None else None


def plans_of(places: Places) -> tuple[Planned, ...]:
    """The plans of all pods, that for a shared claim once."""
    planned = chain.from_iterable(place.planned for place in places.values())
    return tuple({identity(each[0]): each for each in planned}.values())


class GangVictims:
    """The search for the victims of one gang. Call `search` until it does not raise TurnSpent."""

    def __init__(self) -> None:
        self._uids: Sequence[str] | None = None
        """The claims among which victims are looked for."""
        self._trials = Trials()
        self._sets: list[Sequence[Pod]] | None = None
        """The sets of pods that have not been compared, the best last."""

    def search(self, view: View, decisions: Joint, names: Sequence[str]) -> Preemption | NoPreemption:
        """The preemption, if the preemptor lacks only devices on these nodes. Raises TurnSpent and Deferred."""

        def fits(gone: Collection[ResourceClaim]) -> bool:
            known, key = self._trials.fits, tuple([claim.metadata.uid for claim in gone])
            if key not in known:
                known[key] = decisions.places(names, gone) is not None
            return known[key]

        if decisions.gang.problem:
            return NoPreemption("refused", decisions.gang.problem)
        if fits(()):
            return NoPreemption("fits", FITS)
        if self._uids is None:
            self._uids = _lowest(view, decisions.terms)
        found = preemptible_claims(view, decisions.terms, uids=self._uids)
        if found.terminating and fits(found.terminating):
            return NoPreemption("waits", WAITS)
        victims = self._cheapest(view, found, decisions.terms, fits)
        if not victims:
            return HOPELESS
        evicted = {victim.pod.metadata.uid for victim in victims}
        evictable = {pod.metadata.uid for pod in found.with_all(found.pods)}
        places = decisions.places(names, found.freed_by(evicted)) if evicted <= evictable else None
        if not places:
            return UNKNOWN
        first = places.get(decisions.terms.preemptor.metadata.uid) or next(iter(places.values()))
        nodes = {uid: place.node for uid, place in places.items()}
        return Preemption(first.pod, first.node, victims, plans_of(places), nodes)

    def _cheapest(
        self, view: View, found: PreemptibleClaims, terms: PreemptionTerms, fits: Fits
    ) -> tuple[Victim, ...] | None:
        """The victims; None when evictions do not help, or are forbidden."""
        devices = Counter(pod.metadata.uid for each in found.evictable for pod in each.pods for _ in each.devices)
        there = Counter(pod.spec.node_name for pod in found.pods)

        def rank(pod: Pod) -> tuple[float, ...]:
            return devices[pod.metadata.uid] / len(found.with_all((pod,))), -there[pod.spec.node_name]

        pods, victims = found.pods, fewest(found, terms, fits, self._trials, rank=rank)
        if self._sets is None:
            counts = range(1, min(len(pods), len(victims or pods)) + 1)
            every = chain.from_iterable(combinations(pods, count) for count in counts)
            sets = list(islice(every, SETS + 1))
            helps = fits([*found.terminating, *(each.claim for each in found.evictable)])
            sets = sets if helps and len(sets) <= SETS else []
            self._sets = sorted(sets, key=lambda each: cost("", [*map(Victim, found.with_all(each))]), reverse=True)
        while self._sets:
            charge(view, len(found.evictable))
            chosen = as_victims(found, terms.budgets, self._sets[-1])
            forbidden = not terms.violate_budgets and any(victim.violates_budget for victim in chosen)
            if not forbidden and fits(found.freed_by({victim.pod.metadata.uid for victim in chosen})):
                return chosen
            self._sets.pop()
        return victims


def _lowest(view: View, terms: PreemptionTerms) -> Sequence[str]:
    """The UIDs of claims whose first pod leaves, and of claims on nodes with the lowest priorities."""
    claims = [claim for claim in view.ledger.claims() if claim.allocation is not None and claim.status.reserved_for]
    charge(view, len(claims))
    leaving: list[str] = []
    by_node: dict[str, list[str]] = {}
    highest: dict[str, int] = {}
    for claim in claims:
        pod = view.pods.get(claim.status.reserved_for[0].uid)
        if pod is None or pod.metadata.uid in terms.terminating or view.pods.is_terminating(pod.metadata.uid):
            leaving.append(claim.metadata.uid)
        elif terms.may_evict(pod):
            node, priority = pod.spec.node_name, pod.spec.priority
            by_node.setdefault(node, []).append(claim.metadata.uid)
            highest[node] = max(priority, highest.get(node, priority))
    nodes = sorted(by_node, key=lambda node: (highest[node], node))
    return sorted([*leaving, *islice(chain.from_iterable(map(by_node.__getitem__, nodes)), VICTIMS_OF_GANG)])
