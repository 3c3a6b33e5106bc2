"""How well a node suits a pod: scorers, and the one that Kubernetes has.

A scorer sees what the allocator found for a node and, when it says so, what else the node has. It says what it reads,
because nodes that look the same to it share one score: a scorer that reads more than it declares gets stale answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.nodeview import NodeView

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
