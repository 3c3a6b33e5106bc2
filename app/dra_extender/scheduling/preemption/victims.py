"""The fewest victims on one node, and which node costs least.

Promises: pure. First, all evictable claims are removed. Then pods are reprieved as long as the preemptor still fits:
pods whose eviction would violate a budget come first, then the most important ones; of equal priority, pods that are
evicted together with most others. So every victim is necessary. A pod that shares a claim with a victim is reprieved
only if the preemptor fits without that claim: a claim is freed with all its pods or not at all. The number of decisions
grows with the victims, and with the logarithm of the number of pods reprieved between two victims. Apart from
decisions, the work is linear in the consumers of all claims, and for each decision in the claims.

Rules: Kubernetes 1.36, SelectVictimsOnNode of pkg/scheduler/framework/plugins/defaultpreemption;
pickOneNodeForPreemption and OrderedScoreFuncs of pkg/scheduler/framework/preemption. Different from there: among equal
nodes the name decides, not chance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from math import inf
from operator import is_
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.meta import parse_time
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace, violating
from dra_extender.scheduling.preemption.preemptible import PreemptibleClaim, PreemptibleClaims, importance
from dra_extender.scheduling.preemption.terms import PreemptionTerms, Victim
from dra_extender.scheduling.view import View

Fits = Callable[[Collection[ResourceClaim]], bool]
"""True when the preemptor fits without these claims. It must not change from True to False when claims are added."""


class Trials:
    """What was tried in one state, so that the next turn goes on from there."""

    def __init__(self) -> None:
        self.fits: dict[tuple[str, ...], bool] = {}
        """What `Fits` returned, by the UIDs of the claims."""
        self._state: tuple[object, ...] = ()
        self._users: object = None
        self._victims: list[int] = []

    def on(self, view: View, terms: PreemptionTerms, node: str) -> Trials:
        """The trials on the node in its present state. Those in another state are forgotten."""
        inventory = view.cluster.inventory
        kept = (allocation for _, allocation in view.kept(terms.preemptor))
        state = inventory.view(node), *map(view.ledger.holdings, inventory.pools_seen(node)), *kept
        if len(state) != len(self._state) or not all(map(is_, state, self._state)):
            self.fits, self._users, self._state = {}, None, state
        return self

    def victims(self, users: object) -> list[int]:
        """The victims found so far among these users of claims. The caller adds to them."""
        if users != self._users:
            self._users, self._victims = users, []
        return self._victims


OFFSET: Final = 2**31
"""Makes every priority positive, so that one more victim never lowers the sum."""

PreemptionCost = tuple[int, int, int, int, float, str]
"""Violated budgets, highest priority of a victim, sum of priorities, number of victims, latest start (negative) of the
earliest-started victim of the highest priority, node. The smallest is best.
"""


def cost(node: str, victims: Sequence[Victim]) -> PreemptionCost:
    """The cost of preempting these victims, at least one, on the node."""
    priorities = [victim.pod.spec.priority for victim in victims]
    highest = max(priorities)
    started = min(_started(victim.pod) for victim in victims if victim.pod.spec.priority == highest)
    violations = sum(victim.violates_budget for victim in victims)
    total = sum(priority + OFFSET for priority in priorities)
    return violations, highest, total, len(victims), -started, node


def _started(pod: Pod) -> float:
    """Seconds since the epoch; a pod that has not started counts as started last."""
    moment = parse_time(pod.status.start_time or "")
    return moment.timestamp() if moment is not None else inf


def fewest(
    found: PreemptibleClaims,
    terms: PreemptionTerms,
    fits: Fits,
    trials: Trials,
    already: Sequence[Pod] = (),
    rank: Callable[[Pod], tuple[float, ...]] | None = None,
) -> tuple[Victim, ...] | None:
    """The victims, the most important first; None when the preemptor does not fit even without all of them, or they
    violate a budget and must not. `trials` is read and extended. `already`: certain victims, which budgets count first.
    `rank`: of pods with equal priority, those of lower rank are reprieved first.
    """
    pods = found.pods
    over = violating((*already, *found.with_all(pods)), terms.budgets)
    if found.together or rank:
        over |= {pod.metadata.uid for pod in pods if any(each.metadata.uid in over for each in found.with_all((pod,)))}
        ranked = rank or (lambda pod: (-len(found.with_all((pod,))),))
        pods = tuple(sorted(pods, key=lambda pod: (-pod.spec.priority, ranked(pod))))
    order = [pod for pod in pods if pod.metadata.uid in over] + [pod for pod in pods if pod.metadata.uid not in over]
    reprieve = _Reprieve(found, order, fits, trials)
    if not reprieve.fits_without(0):
        return None
    victims = as_victims(found, terms.budgets, reprieve.victims(), already)
    return None if not terms.violate_budgets and any(victim.violates_budget for victim in victims) else victims


class _Reprieve:
    """Reprieves pods in this order. Pods are numbered by their position in it."""

    def __init__(self, found: PreemptibleClaims, order: Sequence[Pod], fits: Fits, trials: Trials) -> None:
        self._found, self._order, self._fits, self._known = found, order, fits, trials.fits
        numbers = {pod.metadata.uid: number for number, pod in enumerate(order)}
        users = [
            (each.claim.metadata.uid, sorted(numbers[p.metadata.uid] for p in each.pods)) for each in found.evictable
        ]
        self._rest = [iter(pods) for _, pods in users]
        self._first = [next(rest) for rest in self._rest]
        """By claim: its first user that is not a victim; the number of pods when there is none."""
        self._claims: dict[int, list[int]] = {}
        """By pod: the claims that it uses."""
        for claim, (_, pods) in enumerate(users):
            for number in pods:
                self._claims.setdefault(number, []).append(claim)
        self._victims = trials.victims(([pod.metadata.uid for pod in order], users))
        for victim in self._victims:
            self._evict(victim)

    def fits_without(self, start: int) -> bool:
        """True when the preemptor fits without the victims so far and all pods from this one on."""
        freed = (each.claim for each, first in zip(self._found.evictable, self._first, strict=True) if first >= start)
        claims = (*self._found.terminating, *freed)
        key = tuple([claim.metadata.uid for claim in claims])
        if key not in self._known:
            self._known[key] = self._fits(claims)
        return self._known[key]

    def victims(self) -> list[Pod]:
        """The pods that cannot be reprieved. Steps that double, then halve, find the next one."""
        end = len(self._order)
        start = self._victims[-1] + 1 if self._victims else 0
        while start < end:
            low, step = 0, 1
            while low + step <= end - start and self.fits_without(start + low + step):
                low, step = low + step, 2 * step
            further = range(start + low + 1, min(start + low + step, end + 1))
            start += low + bisect_left(further, True, key=lambda number: not self.fits_without(number))
            if start < end:
                self._victims.append(start)
                self._evict(start)
                start += 1
        return [self._order[victim] for victim in self._victims]

    def _evict(self, victim: int) -> None:
        for claim in self._claims[victim]:
            if self._first[claim] == victim:
                self._first[claim] = next(self._rest[claim], len(self._order))


def as_victims(
    found: PreemptibleClaims, budgets: BudgetsByNamespace, pods: Sequence[Pod], already: Sequence[Pod] = ()
) -> tuple[Victim, ...]:
    """These pods, and the pods that are evicted together with them, the most important first. Violations are counted
    again, because reprieved pods use up no disruption.
    """
    ordered = sorted(found.with_all(pods), key=importance)
    used: dict[str, list[PreemptibleClaim]] = {pod.metadata.uid: [] for pod in ordered}
    for each in found.evictable:
        uids = [pod.metadata.uid for pod in each.pods]
        if all(uid in used for uid in uids):
            if not found.together.keys().isdisjoint(uids):  # a pod stands for others, which use the claim or do not
                uids = [consumer.uid for consumer in each.claim.status.reserved_for]
            for uid in used.keys() & uids:
                used[uid].append(each)
    over = violating((*already, *ordered), budgets)
    victims = []
    for pod in ordered:
        uid = pod.metadata.uid
        devices = tuple(dict.fromkeys(device for each in used[uid] for device in each.devices))
        victims.append(Victim(pod, tuple(each.claim for each in used[uid]), devices, uid in over))
    return tuple(victims)
