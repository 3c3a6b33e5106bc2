"""Restores a nomination of another replica from the mark on the pod.

Promises: pure. Every user who may create pods can write such a mark. So a mark causes only evictions that preemption
for the pod could cause, and it keeps devices no longer than our own nominations do. The restored nomination waits for
victims that are terminating.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod
from dra_extender.api.meta import parse_time
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.nomination.nominations import Mark
from dra_extender.scheduling.preemption.candidates import plan_without
from dra_extender.scheduling.preemption.evaluator import ineligible
from dra_extender.scheduling.preemption.preemptible import preemptible_claims
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View

GRACE_SECONDS = 30.0
"""The API server's default of terminationGracePeriodSeconds."""


class Restored(msgspec.Struct, frozen=True):
    """The victims, the UIDs of the claims that are free once they are gone, and the plans to keep."""

    victims: tuple[str, ...]
    claims: tuple[str, ...] = ()
    plans: tuple[Planned, ...] = ()


def restored(view: View, pod: Pod, mark: Mark, terms: PreemptionTerms) -> Restored | None:
    """None when preemption would not choose these victims now. Raises TurnSpent."""
    known = [victim for uid in mark.victims if (victim := view.pods.get(uid)) is not None]
    staying = {victim.metadata.uid for victim in known if not view.pods.is_terminating(victim.metadata.uid)}
    prefiltered = pre_filter(view, pod)
    if not isinstance(prefiltered, PreFilterState):
        return None if staying else Restored(mark.victims)
    terms = terms.with_claims(prefiltered.order)
    try:
        found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(mark.node))
        gone = found.freed_by(set(mark.victims))
        plans = plan_without(view, prefiltered, terms, mark.node, gone)
        never = staying and _must_not(view, terms)
    except Deferred:  # unknown now whether the choice still holds
        return None if staying else Restored(mark.victims)
    allowed = {victim.metadata.uid for victim in found.pods}
    if staying and (never or plans is None or not staying <= allowed):
        return None
    freed = (claim for claim in gone if any(entry.uid in mark.victims for entry in claim.status.reserved_for))
    return Restored(mark.victims, tuple(claim.metadata.uid for claim in freed), plans or ())


def _must_not(view: View, terms: PreemptionTerms) -> bool:
    refused = ineligible(view, terms)
    return refused is not None and refused.why == "never"


def seconds_left(view: View, mark: Mark, victims: Iterable[Pod]) -> float:
    """How long the nomination lasts at most; zero or less when it has ended."""
    until = parse_time(mark.until)
    if until is None:
        return 0.0
    longest = max(map(grace_seconds, victims), default=GRACE_SECONDS) + view.config.preemption_margin_seconds
    return min((until - view.clock.wall()).total_seconds(), longest)


def grace_seconds(pod: Pod) -> float:
    """The grace period of the pod."""
    seconds = pod.spec.termination_grace_period_seconds
    return GRACE_SECONDS if seconds is None else float(seconds)
