"""How well a node suits a pod: earlier alternatives of prioritized lists count more.

Rules: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (computeScore). The first of at most eight
alternatives counts 8, the next 7 and so on. Exact requests count nothing; how full a node is takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.api.resource import AllocationResult, ResourceClaim

FIRST_ALTERNATIVE: Final = 8


def raw_score(allocated: Iterable[tuple[ResourceClaim, AllocationResult]]) -> int:
    """The sum over claims and their (planned or stored) allocations; not normalised. An alternative counts once."""
    return sum(_claim_score(claim, allocation) for claim, allocation in allocated)


def _claim_score(claim: ResourceClaim, allocation: AllocationResult) -> int:
    chosen = {result.request for result in allocation.devices.results}
    score = 0
    for request in claim.spec.devices.requests:
        for index, alternative in enumerate(request.first_available):
            if f"{request.name}/{alternative.name}" in chosen:
                score += FIRST_ALTERNATIVE - index
                break
    return score
