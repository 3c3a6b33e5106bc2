"""Whether the preemptor fits when certain claims are gone: the one allocator, asked about hypothetical states.

Promises: pure. What is kept for others, which have made room for themselves, is taken, also where they wait for the
very claims that are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from dra_extender.allocation.plan import Plan
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.feasibility import (
    NodeStatuses,
    PendingClaims,
    PreFilterState,
    node_statuses,
    pending_claims,
)
from dra_extender.scheduling.preemption.terms import Terms
from dra_extender.scheduling.view import View

PER_CLAIM = 2
"""Units of work that putting a claim aside costs."""


def spend(view: View, units: int) -> None:
    """Count work that cannot be interrupted, as so little of a turn that there is always room for a question. Raises
    TurnSpent and Waiting.
    """
    view.decisions.spend(min(units, view.config.turn_work // 8))


def after(view: View, terms: Terms, gone: Collection[ResourceClaim]) -> View:
    """The view when these claims are gone. Raises TurnSpent and Deferred."""
    kept = [plan for plan in view.kept(terms.preemptor) if not _is_decided(view, plan[0])]
    aside = [*gone, *(claim for claim, _ in kept)]  # what is kept is put back: it may be more when claims are gone
    spend(view, PER_CLAIM * len(aside))
    state = view.overlay().without(aside).holding(kept)
    return msgspec.structs.replace(view.with_state(state), placement=None)


def _is_decided(view: View, claim: ResourceClaim) -> bool:
    """True when the claim has devices by now: then they count, and not what was kept for it."""
    uid = claim.metadata.uid
    stored = view.ledger.by_uid(uid)
    return (stored is not None and stored.allocation is not None) or view.ledger.held(uid) is not None


def fitting(
    view: View, prefiltered: PreFilterState, terms: Terms, nodes: Sequence[str], gone: Collection[ResourceClaim]
) -> NodeStatuses:
    """On which of the nodes the preemptor fits then."""
    return node_statuses(after(view, terms, gone), prefiltered, nodes)


def planned(
    view: View, prefiltered: PreFilterState, terms: Terms, node: str, gone: Collection[ResourceClaim]
) -> tuple[Planned, ...] | None:
    """What the preemptor gets on the node then; None when it does not fit. Raises Deferred when nobody can say yet."""
    known = view.cluster.nodes.get(node)
    pending = pending_claims(prefiltered, known) if known is not None else None
    if (
        known is None
        or not isinstance(pending, PendingClaims)
        or not all(reach(known) for _, reach in prefiltered.reaches)
    ):
        return None
    if not pending.claims:
        return ()
    plan = after(view, terms, gone).decisions.plan(pending.claims, node)
    return tuple(zip(pending.claims, plan.allocations, strict=True)) if isinstance(plan, Plan) else None
