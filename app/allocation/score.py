"""How well a node suits a pod: earlier alternatives of prioritized requests count more.

Rules: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (computeScore). Nothing else, such as how full a
node is, takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.api.resource import AllocationResult, ResourceClaim

FIRST_ALTERNATIVE: Final = 8
"""What the first of at most eight alternatives is worth."""


def score(claims: Iterable[tuple[ResourceClaim, AllocationResult]]) -> int:
    """The raw score of a node, for all claims of the pod with their (planned or stored) allocations."""
    return sum(_claim_score(claim, allocation) for claim, allocation in claims)


def _claim_score(claim: ResourceClaim, allocation: AllocationResult) -> int:
    chosen = {result.request for result in allocation.devices.results}
    total = 0
    for request in claim.spec.devices.requests:
        for index, alternative in enumerate(request.first_available):
            if f"{request.name}/{alternative.name}" in chosen:
                total += FIRST_ALTERNATIVE - index
                break
    return total
