"""The fewest victims on one node, and which node costs least.

Promises: pure. First, all evictable claims are removed. Then pods are reprieved as long as the preemptor still fits:
pods whose eviction would violate a budget come first, then the most important ones. So every victim is necessary. A
pod that shares a claim with a victim is reprieved only if the preemptor fits without that claim: a claim is freed with
all its pods or not at all. The number of decisions grows with the victims, and with the logarithm of the number of pods
reprieved between two victims.

Rules: Kubernetes 1.36, SelectVictimsOnNode of pkg/scheduler/framework/plugins/defaultpreemption;
pickOneNodeForPreemption and OrderedScoreFuncs of pkg/scheduler/framework/preemption. Different from there: among equal
nodes the name decides, not chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.meta import parse_time
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace, violating
from dra_extender.scheduling.preemption.preemptible import PreemptibleClaim, PreemptibleClaims, importance
from dra_extender.scheduling.preemption.result import Victim

Fits = Callable[[Collection[ResourceClaim]], bool]
"""True when the preemptor fits without these claims. It must not change from True to False when claims are added."""

FitsByClaims = dict[tuple[str, ...], bool]
"""What `Fits` returned, by the UIDs of the claims."""

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
    budgets: BudgetsByNamespace,
    fits: Fits,
    *,
    known: FitsByClaims,
    already: Sequence[Pod] = (),
) -> tuple[Victim, ...] | None:
    """The victims, the most important first; None when the preemptor does not fit even without all of them. `known` is
    read and extended. `already`: certain victims, which budgets count first.
    """
    pods = found.pods
    over = violating((*already, *pods), budgets)
    order = [pod for pod in pods if pod.metadata.uid in over] + [pod for pod in pods if pod.metadata.uid not in over]

    def fits_without(evicted: Collection[str]) -> bool:
        claims = found.freed_by(evicted)
        key = tuple(claim.metadata.uid for claim in claims)
        if key not in known:
            known[key] = fits(claims)
        return known[key]

    if not fits_without({pod.metadata.uid for pod in order}):
        return None
    return _as_victims(found, budgets, _reprieve(order, fits_without), already)


def _reprieve(order: Sequence[Pod], fits: Callable[[Collection[str]], bool]) -> list[Pod]:
    """The pods that cannot be reprieved. Steps that double, then halve, find the next one."""
    victims: list[Pod] = []
    start = 0
    while start < len(order):

        def can_stay(count: int, start: int = start) -> bool:
            later = [pod.metadata.uid for pod in (*victims, *order[start + count :])]
            return fits(frozenset(later))

        low, step = 0, 1
        while low + step <= len(order) - start and can_stay(low + step):
            low, step = low + step, 2 * step
        high = min(low + step, len(order) - start + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if can_stay(middle) else (low, middle)
        start += low
        if start < len(order):
            victims.append(order[start])
            start += 1
    return victims


def _as_victims(
    found: PreemptibleClaims, budgets: BudgetsByNamespace, pods: Sequence[Pod], already: Sequence[Pod]
) -> tuple[Victim, ...]:
    """Violations are counted again, because reprieved pods use up no disruption."""
    ordered = sorted(pods, key=importance)
    gone = {pod.metadata.uid for pod in ordered}
    freed = [each for each in found.evictable if all(pod.metadata.uid in gone for pod in each.pods)]
    over = violating((*already, *ordered), budgets)
    return tuple(_victim(pod, freed, violates=pod.metadata.uid in over) for pod in ordered)


def _victim(pod: Pod, freed: Sequence[PreemptibleClaim], *, violates: bool) -> Victim:
    uid = pod.metadata.uid
    used = [each for each in freed if any(other.metadata.uid == uid for other in each.pods)]
    return Victim(
        pod=pod,
        claims=tuple(each.claim for each in used),
        devices=tuple(dict.fromkeys(device for each in used for device in each.devices)),
        violates_budget=violates,
    )
