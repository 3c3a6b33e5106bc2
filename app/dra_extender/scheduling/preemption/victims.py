"""The fewest pods that have to go on one node.

Promises: pure. All that may go is taken away first; then pods are reprieved, those whose budget would be violated
before the others, and of these the most important first, as long as the preemptor fits without their devices. So no
victim can be left out. A pod that shares a claim with a victim, and whose other claims are not needed, is reprieved
only if the claim is: a claim goes with all its pods or not at all.

How often it is asked whether the pod fits grows with the victims, and with the logarithm of the pods that are reprieved
between two of them.

Rules: Kubernetes 1.36, SelectVictimsOnNode of pkg/scheduler/framework/plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dra_extender.api.core import Pod
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.preemption.budgets import violating
from dra_extender.scheduling.preemption.occupants import Occupant, Occupants, importance
from dra_extender.scheduling.preemption.outcome import Victim

Fits = Callable[[Collection[ResourceClaim]], bool]
"""Whether the preemptor fits without these claims. More of them never make it unfit."""

Answers = dict[tuple[str, ...], bool]
"""What `fits` said, by the UIDs of the claims."""


def fewest(
    found: Occupants,
    budgets: Sequence[PodDisruptionBudget],
    fits: Fits,
    *,
    known: Answers,
    already: Sequence[Pod] = (),
) -> tuple[Victim, ...] | None:
    """The victims, the most important first; None when it is all in vain. `known` is read and added to. `already`:
    victims that are certain, whom budgets count first.
    """
    pods = found.pods
    over = violating((*already, *pods), budgets)
    order = [pod for pod in pods if pod.metadata.uid in over] + [pod for pod in pods if pod.metadata.uid not in over]

    def fits_when_gone(gone: Collection[str]) -> bool:
        claims = found.without(gone)
        key = tuple(claim.metadata.uid for claim in claims)
        if key not in known:
            known[key] = fits(claims)
        return known[key]

    if not fits_when_gone({pod.metadata.uid for pod in order}):
        return None
    return _described(found, budgets, _reprieve(order, fits_when_gone), already)


def _reprieve(order: Sequence[Pod], fits: Callable[[Collection[str]], bool]) -> list[Pod]:
    """Those who cannot be reprieved. Whoever is between two of them is found by steps that double, then halve."""
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


def _described(
    found: Occupants, budgets: Sequence[PodDisruptionBudget], victims: Sequence[Pod], already: Sequence[Pod]
) -> tuple[Victim, ...]:
    """Which budgets are violated is counted anew: the pods that were reprieved take from none."""
    ordered = sorted(victims, key=importance)
    gone = {pod.metadata.uid for pod in ordered}
    freed = [o for o in found.evictable if all(pod.metadata.uid in gone for pod in o.pods)]
    over = violating((*already, *ordered), budgets)
    return tuple(_victim(pod, freed, violates=pod.metadata.uid in over) for pod in ordered)


def _victim(pod: Pod, freed: Sequence[Occupant], *, violates: bool) -> Victim:
    uid = pod.metadata.uid
    used = [o for o in freed if any(other.metadata.uid == uid for other in o.pods)]
    return Victim(
        pod=pod,
        claims=tuple(o.claim for o in used),
        devices=tuple(dict.fromkeys(device for o in used for device in o.devices)),
        violates_budget=violates,
    )
