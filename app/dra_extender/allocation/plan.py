"""The answers of the allocator for one node: Plan, Unfit or Failure; the score of a plan; and the rules that exclude
devices.

Rules: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (DeviceFilter for the classes of answers,
computeScore for scores). Nothing else, such as how full a node is, takes part in a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from dra_extender.api.core import NodeAllocatableResourceClaimStatus
from dra_extender.api.resource import AllocationResult, ResourceClaim

STEP_BUDGET: Final = 10_000
"""Steps after which a node is given up as undecided; a step takes from 2 to 100 microseconds."""

NO_SOLUTION: Final = "cannot allocate all claims"
NOT_SYNCED: Final = "node not synced yet"
INVALID_POOLS: Final = "invalid resource pools were encountered"


def undecided(steps: int) -> str:
    """The reason when the step budget is used up."""
    return f"undecided within {steps} steps"


NodeAmounts = tuple[NodeAllocatableResourceClaimStatus | None, ...]
"""What the devices of each claim take of the node, in order; empty if none takes anything."""


class Plan(msgspec.Struct, frozen=True):
    """One allocation per claim, in order, without allocationTimestamp."""

    allocations: tuple[AllocationResult, ...]
    steps: int
    amounts: NodeAmounts = ()


class Unfit(msgspec.Struct, frozen=True):
    """This node cannot have the pod now. `reason` is constant per kind of refusal and may reach pod events."""

    reason: str
    steps: int


class Failure(msgspec.Struct, frozen=True):
    """The attempt to schedule the pod has to be aborted, on all nodes."""

    error: str
    steps: int = 0


FIRST_ALTERNATIVE: Final = 8
"""What the first of at most eight alternatives is worth."""


def has_alternatives(claims: Iterable[ResourceClaim]) -> bool:
    """False when all nodes get the same score for claims like these."""
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


def score_of(allocated: Iterable[tuple[ResourceClaim, AllocationResult]]) -> int:
    """The raw score, not normalised, of claims with these planned or stored allocations: earlier alternatives of
    prioritized requests count more.
    """
    total = 0
    for claim, allocation in allocated:
        chosen = {result.request for result in allocation.devices.results}
        for request in claim.spec.devices.requests:
            names = [f"{request.name}/{alternative.name}" for alternative in request.first_available]
            total += next((FIRST_ALTERNATIVE - index for index, name in enumerate(names) if name in chosen), 0)
    return total


Rule = Literal[
    "class", "binding conditions", "selector", "node", "error", "node operations", "in use", "capacity",
    "compatibility groups", "counters", "taint", "constraint",
]  # fmt: skip
"""What can take a device away from a request, in the order in which the search looks at rules."""

RULES: Final[tuple[Rule, ...]] = get_args(Rule)

RULE_TEXTS: Final[Mapping[Rule, str]] = {
    "binding conditions": "has binding conditions, which are turned off",
    "class": "is not selected by the device class",
    "selector": "is not selected by the request",
    "node": "is for other nodes",
    "error": "makes a selector fail",
    "node operations": "skips operations of the kubelet, and the node does not declare DRAOptionalNodeOperations",
    "in use": "is in use",
    "capacity": "has too little capacity",
    "compatibility groups": "has no compatibility group in common with devices in use on its counter set",
    "counters": "consumes counters that are not available",
    "taint": "has a taint that is not tolerated",
    "constraint": "does not satisfy the constraints of the claim",
}
"""The text of each rule, for one device that it excludes."""
_PLURAL: Final = {"is": "are", "has": "have", "does": "do"}


def rule_text(rule: Rule, count: int) -> str:
    """Why `count` devices are excluded, such as "2 are in use"."""
    verb, rest = RULE_TEXTS[rule].split(" ", 1)
    if count == 1:
        return f"1 {verb} {rest}"
    return f"{count} {_PLURAL.get(verb, verb[:-1])} {rest.replace(' its ', ' their ')}"


Feasibility = Literal["fits", "refused", "undecided", "error"]


class PoolProblem(msgspec.Struct, frozen=True):
    """Why no device of a pool can be allocated. `incomplete`: not all of its slices are published; otherwise its slices
    are invalid.
    """

    driver: str
    pool: str
    incomplete: bool
    problem: str

    def text(self) -> str:
        """For people."""
        return f"pool {self.driver}/{self.pool} is {'incomplete' if self.incomplete else 'invalid'}: {self.problem}"
