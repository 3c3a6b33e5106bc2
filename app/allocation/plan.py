"""The answers of the allocator for one node: Plan, Unfit or Failure, and the explanation of a refusal.

Source of the classes of answers: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (Filter).
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from app.api.resource import AllocationResult
from app.plurals import counted

STEP_BUDGET: Final = 10_000
"""Steps after which a node is given up as undecided; a step takes from 2 to 100 microseconds."""

NO_SOLUTION: Final = "cannot allocate all claims"
INVALID_POOLS: Final = "invalid resource pools were encountered"


def undecided(steps: int) -> str:
    """The reason when the step budget is used up."""
    return f"undecided within {steps} steps"


class Plan(msgspec.Struct, frozen=True):
    """One allocation per claim, in order, without allocationTimestamp."""

    allocations: tuple[AllocationResult, ...]
    steps: int


class Unfit(msgspec.Struct, frozen=True):
    """This node cannot have the pod now. `reason` is constant per kind of refusal and may reach pod events."""

    reason: str
    steps: int


class Failure(msgspec.Struct, frozen=True):
    """The attempt to schedule the pod has to be aborted, on all nodes."""

    error: str
    steps: int = 0


Rule = Literal[
    "binding conditions", "class", "selector", "node", "error", "in use", "capacity", "counters", "taint", "constraint"
]
"""What can take a device away from a request, in the order in which the search looks at rules."""

RULES: Final[tuple[Rule, ...]] = get_args(Rule)

Verdict = Literal["fits", "refused", "undecided", "error"]


class Loss(msgspec.Struct, frozen=True):
    """`count` devices that a rule took away from a request; `names` are the first few of them."""

    rule: Rule
    count: int
    names: tuple[str, ...] = ()


class RequestExplanation(msgspec.Struct, frozen=True):
    """`claim` namespace/name, `request` as in results (`parent/alternative`). `wanted`: how many devices.

    `pooled` devices were in the usable pools; `losses` tell in the order of the rules who took some away; `left` could
    have been taken at the start of the search.
    """

    claim: str
    request: str
    wanted: int
    pooled: int
    losses: tuple[Loss, ...]
    left: int


class Explanation(msgspec.Struct, frozen=True):
    """Why a node was refused (or that it was not). `verdict` is the kind of the answer, `reason` its text.

    `requests` are in the order of the claims; `blocking` names the request the search got stuck at and `last_rule`
    what took its last candidates; `pools` tells of incomplete and invalid pools.
    """

    node: str
    verdict: Verdict
    reason: str
    requests: tuple[RequestExplanation, ...]
    blocking: str
    last_rule: str
    pools: tuple[str, ...]
    steps: int

    def text(self) -> str:
        """For people."""
        lines = [f"node {self.node}: {self.verdict}" + (f": {self.reason}" if self.reason else "")]
        lines.extend(f"  {problem}" for problem in self.pools)
        for item in self.requests:
            lines.append(
                f"  claim {item.claim}, request {item.request}: wants {item.wanted}, "
                f"{counted(item.pooled, 'device')} in the pools, {item.left} usable"
            )
            for loss in item.losses:
                shown = ", ".join(loss.names) + (", ..." if loss.count > len(loss.names) else "")
                lines.append(f"    {loss.count} taken away by {loss.rule}" + (f" ({shown})" if shown else ""))
        if self.blocking:
            lines.append(f"  stuck at {self.blocking}: {self.last_rule}")
        return "\n".join(lines)
