"""The score of a node for a pod, and the choice between plans for one node.

Promises of `least`: only the search in the published order of devices decides whether a node has a solution, and which
error ends an attempt. A search in another order can only replace this plan by one that costs less. It uses only the
steps that are left of the budget.

Rules of scores: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (computeScore). Nothing else, such as how
full a node is, takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.pools import NodeView

FIRST_ALTERNATIVE: Final = 8
"""What the first of at most eight alternatives is worth."""


def has_alternatives(claims: Iterable[ResourceClaim]) -> bool:
    """False when all nodes get the same score for claims like these."""
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


def score_of(allocated: Iterable[tuple[ResourceClaim, AllocationResult]]) -> int:
    """The raw score, not normalised, of claims with these planned or stored allocations: earlier alternatives of
    prioritized requests count more.
    """
    return sum(_claim_score(claim, allocation) for claim, allocation in allocated)


def _claim_score(claim: ResourceClaim, allocation: AllocationResult) -> int:
    chosen = {result.request for result in allocation.devices.results}
    total = 0
    for request in claim.spec.devices.requests:
        for index, alternative in enumerate(request.first_available):
            if f"{request.name}/{alternative.name}" in chosen:
                total += FIRST_ALTERNATIVE - index
                break
    return total


class PlanChooser(Protocol):
    """A policy's preferences for one pod on one node. Pure."""

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterable[NodeView]:
        """The view with its devices in other orders, the most promising first."""

    def cost(self, plan: Plan) -> Any:
        """The less the better; all costs can be compared."""

    def summary(self, plan: Plan) -> str:
        """The policy that chose, and the cost, for people."""


Attempt = Callable[[NodeView, int], Plan | Unfit | Failure]
"""The decision on a view, with a step budget."""


def least(first: Plan, orders: Iterable[NodeView], cost: Callable[[Plan], Any], attempt: Attempt, budget: int) -> Plan:
    """The plan that costs least among the first plan and the plans found in other orders; at equal cost the earliest.
    The `steps` of the returned plan count all searches.
    """
    best, best_cost, steps = first, cost(first), first.steps
    for view in orders:
        if steps >= budget:
            break
        found = attempt(view, budget - steps)
        steps += found.steps
        if isinstance(found, Plan) and (found_cost := cost(found)) < best_cost:
            best, best_cost = found, found_cost
    return best if best.steps == steps else msgspec.structs.replace(best, steps=steps)
