"""Which node and which plan are best for a pod: scorers of nodes, and the choice between plans for one node.

A scorer rates the plan for a node and, with `reads_use`, the other devices of the node. It declares what it reads,
because nodes with equal equivalence keys share one score: a scorer that reads more than it declares gets stale scores.
`WeightedScorers` adds up several scorers.

Promises of `least`: only the search in the published order of devices decides whether a node has a solution, and which
error ends an attempt. A search in another order can only replace this plan by one that costs less. It uses only the
steps that are left of the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.pools import NodeView

FIRST_ALTERNATIVE: Final = 8
"""What the first of at most eight alternatives is worth."""

Allocated = Iterable[tuple[ResourceClaim, AllocationResult]]
"""Claims with their planned or stored allocations."""


class Scorer(Protocol):
    """Rates the plan for a pod on a node; more is better. Pure.

    Reads the traits of devices in the plan, their attributes as far as `attributes` names them (full names), and, with
    `reads_use`, those of all devices of the node, which of them are in use, and how much capacity and counters are
    left. Never names of nodes, pools and devices.
    """

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> Sequence[str]: ...

    @property
    def reads_use(self) -> bool: ...

    def concerns(self, pending: Iterable[ResourceClaim]) -> bool:
        """False when all nodes get the same score for claims like these."""

    def fixed(self, allocated: Allocated) -> int:
        """What claims that are allocated already contribute, wherever the pod goes."""

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        """The raw score, not normalised, of a node on which the pending claims would be allocated like this, given what
        is held there before.
        """


class PrioritizedList:
    """Earlier alternatives of prioritized requests count more.

    Rules: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (computeScore). Nothing else, such as how full
    a node is, takes part.
    """

    name: Final = "prioritized list"
    attributes: Final = ()
    reads_use: Final = False

    def concerns(self, pending: Iterable[ResourceClaim]) -> bool:
        return any(request.first_available for claim in pending for request in claim.spec.devices.requests)

    def fixed(self, allocated: Allocated) -> int:
        return sum(_claim_score(claim, allocation) for claim, allocation in allocated)

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        return self.fixed(planned)


def _claim_score(claim: ResourceClaim, allocation: AllocationResult) -> int:
    chosen = {result.request for result in allocation.devices.results}
    total = 0
    for request in claim.spec.devices.requests:
        for index, alternative in enumerate(request.first_available):
            if f"{request.name}/{alternative.name}" in chosen:
                total += FIRST_ALTERNATIVE - index
                break
    return total


class WeightedScorers:
    """The sum of several scorers' raw scores, each times its weight."""

    def __init__(self, scorers: Sequence[tuple[Scorer, int]]) -> None:
        self.name: Final = ", ".join(scorer.name for scorer, _ in scorers)
        self.attributes: Final = tuple(sorted({name for scorer, _ in scorers for name in scorer.attributes}))
        self.reads_use: Final = any(scorer.reads_use for scorer, _ in scorers)
        self._scorers = tuple(scorers)

    def concerns(self, pending: Iterable[ResourceClaim]) -> bool:
        claims = tuple(pending)
        return any(scorer.concerns(claims) for scorer, _ in self._scorers)

    def fixed(self, allocated: Allocated) -> int:
        known = tuple(allocated)
        return sum(weight * scorer.fixed(known) for scorer, weight in self._scorers)

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        known = tuple(planned)
        return sum(weight * scorer.score(known, view, holdings) for scorer, weight in self._scorers)


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
