"""What is left to do of a nomination that another replica has made, as the pod says.

Promises: pure. The mark is an annotation, and whoever may create pods may write one. So it is no order: nobody goes
because of it whom the pod could not preempt anyway, and nothing is kept for longer than for a nomination of our own.
Who is going already is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod
from dra_extender.api.times import parse_time
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


class Resumption(msgspec.Struct, frozen=True):
    """Go on with these victims. `claims`: UIDs of those that are free when they are gone."""

    victims: tuple[str, ...]
    claims: tuple[str, ...] = ()
    plans: tuple[Planned, ...] = ()


def resumption(view: View, pod: Pod, mark: Mark, terms: PreemptionTerms) -> Resumption | None:
    """None when the choice is not one that could be made now. Raises TurnSpent."""
    known = [victim for uid in mark.victims if (victim := view.pods.get(uid)) is not None]
    staying = {victim.metadata.uid for victim in known if not view.pods.leaving(victim.metadata.uid)}
    prefiltered = pre_filter(view, pod)
    if not isinstance(prefiltered, PreFilterState):
        return None if staying else Resumption(mark.victims)
    terms = terms.with_claims(prefiltered.order)
    try:
        found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(mark.node))
        gone = found.freed_by(set(mark.victims))
        plans = plan_without(view, prefiltered, terms, mark.node, gone)
        never = staying and _must_not(view, terms)
    except Deferred:  # nobody can say now whether the choice still holds
        return None if staying else Resumption(mark.victims)
    allowed = {victim.metadata.uid for victim in found.pods}
    if staying and (never or plans is None or not staying <= allowed):
        return None
    freed = (claim for claim in gone if any(entry.uid in mark.victims for entry in claim.status.reserved_for))
    return Resumption(mark.victims, tuple(claim.metadata.uid for claim in freed), plans or ())


def _must_not(view: View, terms: PreemptionTerms) -> bool:
    refused = ineligible(view, terms)
    return refused is not None and refused.why == "never"


def seconds_left(view: View, mark: Mark, victims: Iterable[Pod]) -> float:
    """How long the nomination lasts at most; nothing or less when it is over."""
    until = parse_time(mark.until)
    if until is None:
        return 0.0
    longest = max(map(grace_seconds, victims), default=GRACE_SECONDS) + view.config.preemption_margin_seconds
    return min((until - view.clock.wall()).total_seconds(), longest)


def grace_seconds(pod: Pod) -> float:
    """How long the pod may take to end."""
    seconds = pod.spec.termination_grace_period_seconds
    return GRACE_SECONDS if seconds is None else float(seconds)
