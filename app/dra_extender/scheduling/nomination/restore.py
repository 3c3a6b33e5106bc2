"""Restores a nomination of another replica.

Promises: pure. The pod's status names the node only; everything else follows from the cluster. The nomination is
restored only if the pod may preempt, and gets its devices on the node once pods that are terminating are gone. No
further pod is evicted for it: a pod that needs more evictions preempts anew.
"""

from __future__ import annotations

import msgspec

from dra_extender.allocation.budget import Deferred
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.preemption.candidates import plan_without
from dra_extender.scheduling.preemption.preemptible import preemptible_claims
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View


class Restored(msgspec.Struct, frozen=True):
    """The claims of terminating pods on the node, and the plans to keep."""

    claims: tuple[ResourceClaim, ...]
    plans: tuple[Planned, ...]

    @property
    def victims(self) -> tuple[str, ...]:
        """The UIDs of the pods to wait for."""
        return tuple(dict.fromkeys(entry.uid for claim in self.claims for entry in claim.status.reserved_for))


def restored(view: View, terms: PreemptionTerms, node: str) -> Restored | None:
    """None when nothing is to be kept for the pod on the node, or this cannot be decided now. Raises TurnSpent."""
    if not terms.may_preempt or terms.preemptor.spec.scheduling_gates:
        return None
    prefiltered = pre_filter(view, terms.preemptor)
    if not isinstance(prefiltered, PreFilterState):
        return None
    terms = terms.with_claims(prefiltered.order)
    try:
        found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(node))
        plans = plan_without(view, prefiltered, terms, node, found.terminating)
    except Deferred:
        return None
    return Restored(found.terminating, plans) if plans else None
