"""Of nodes that refuse a pod: those where evicting others would help.

Promises: a question whose work does not grow with the cluster; where it is not answered within that, eviction may help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.scheduling.feasibility import PreFilterState
from dra_extender.scheduling.preemption.occupants import occupants_of
from dra_extender.scheduling.preemption.state import fitting
from dra_extender.scheduling.preemption.terms import Terms
from dra_extender.scheduling.view import View

MOST_NODES: Final = 64
MOST_DEVICES: Final = 512
"""How many nodes are looked at, and devices in use there: a few milliseconds."""


def resolvable(view: View, prefiltered: PreFilterState, terms: Terms, names: Sequence[str]) -> frozenset[str]:
    """The nodes, of these that refuse the pod, where it fits once pods of lower priority are gone, or may."""
    lowest = view.pods.lowest_priority
    if not terms.may_preempt or lowest is None or lowest >= terms.preemptor.spec.priority:
        return frozenset()
    looked = _few(view, names)
    try:
        return frozenset(names[len(looked) :]) | _relieved(view, prefiltered, terms.about(prefiltered.order), looked)
    except (TurnSpent, Deferred):
        return frozenset(names)


def _few(view: View, names: Sequence[str]) -> Sequence[str]:
    """The first of them, within the config."""
    devices = 0
    for count, name in enumerate(names[:MOST_NODES]):
        devices += sum(len(view.ledger.in_use(pool)) for pool in view.cluster.inventory.pools_seen(name))
        if devices > MOST_DEVICES:
            return names[:count]
    return names[:MOST_NODES]


def _relieved(view: View, prefiltered: PreFilterState, terms: Terms, names: Sequence[str]) -> frozenset[str]:
    pools = dict.fromkeys(pool for name in names for pool in view.cluster.inventory.pools_seen(name))
    found = occupants_of(view, terms, pools)
    everything = [*found.going, *(occupant.claim for occupant in found.evictable)]
    if not everything:
        return frozenset()
    statuses = fitting(view, prefiltered, terms, names, everything)
    return frozenset(names if statuses.waiting else statuses.fits)
