"""The answers of the allocator for one node: Plan, Unfit or Failure, and the explanation of a refusal.

Source of the classes of answers: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (DeviceFilter).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, get_args

import msgspec

from dra_extender.api.resource import AllocationResult
from dra_extender.plurals import counted

STEP_BUDGET: Final = 10_000
"""Steps after which a node is given up as undecided; a step takes from 2 to 100 microseconds."""

NO_SOLUTION: Final = "cannot allocate all claims"
NOT_SYNCED: Final = "node not synced yet"
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

RULE_TEXTS: Final[Mapping[Rule, tuple[str, str]]] = {
    "binding conditions": (
        "has binding conditions, which are turned off",
        "have binding conditions, which are turned off",
    ),
    "class": ("is not selected by the device class", "are not selected by the device class"),
    "selector": ("is not selected by the request", "are not selected by the request"),
    "node": ("is for other nodes", "are for other nodes"),
    "error": ("makes a selector fail", "make a selector fail"),
    "in use": ("is in use", "are in use"),
    "capacity": ("has too little capacity", "have too little capacity"),
    "counters": ("consumes counters that are not available", "consume counters that are not available"),
    "taint": ("has a taint that is not tolerated", "have a taint that is not tolerated"),
    "constraint": ("does not satisfy the constraints of the claim", "do not satisfy the constraints of the claim"),
}
"""The text of each rule, for one device that it excludes, and for several."""


def rule_text(rule: Rule, count: int) -> str:
    """Why `count` devices are excluded, such as "2 are in use"."""
    return f"{count} {RULE_TEXTS[rule][count != 1]}"


Feasibility = Literal["fits", "refused", "undecided", "error"]


class RuleLoss(msgspec.Struct, frozen=True):
    """`count` devices that a rule took away from a request; `names` are the first few of them."""

    rule: Rule
    count: int
    names: tuple[str, ...] = ()

    def text(self) -> str:
        """For people."""
        shown = ", ".join(self.names) + (", ..." if self.count > len(self.names) else "")
        return rule_text(self.rule, self.count) + (f" ({shown})" if self.names else "")


class RequestExplanation(msgspec.Struct, frozen=True):
    """`claim` namespace/name, `request` as in results (`parent/alternative`). `wanted`: how many devices, at least one.

    `pooled` devices were in the usable pools; `losses` say, in the order of the rules, how many each rule took away;
    `left` could have been taken at the start of the search.
    """

    claim: str
    request: str
    wanted: int
    pooled: int
    losses: tuple[RuleLoss, ...]
    left: int

    def lines(self) -> Iterator[str]:
        """For people."""
        found = f"{self.pooled} in the pools" if self.pooled else "there are none in the pools"
        left = f", {self.left} of them left" if self.losses else ""
        yield f"claim {self.claim}, request {self.request} wants {counted(self.wanted, 'device')}; {found}{left}"
        for loss in self.losses:
            yield f"  {loss.text()}"


class Stuck(msgspec.Struct, frozen=True):
    """The request that the search could not get past, without alternative, and why (`cause`, for people).

    `after`: for a request that has too few devices on its own, per alternative the rule after which it had; "pools"
    when it had from the start. Empty when only the requests together have too few.
    """

    claim: str
    request: str
    cause: str
    after: tuple[Rule | Literal["pools"], ...] = ()


class PoolProblem(msgspec.Struct, frozen=True):
    """Why the devices of a pool are left out: not all of its slices are there (`incomplete`), or they are invalid."""

    driver: str
    pool: str
    incomplete: bool
    problem: str

    def text(self) -> str:
        """For people."""
        return f"pool {self.driver}/{self.pool} is {'incomplete' if self.incomplete else 'invalid'}: {self.problem}"


class Explanation(msgspec.Struct, frozen=True):
    """Why a node was refused (or that it was not). `verdict` is the kind of the answer, `reason` its text.

    `requests` are in the order of the claims; `stuck` is there when the node was refused or given up.
    """

    node: str
    verdict: Feasibility
    reason: str
    requests: tuple[RequestExplanation, ...] = ()
    stuck: Stuck | None = None
    pools: tuple[PoolProblem, ...] = ()
    steps: int = 0

    def text(self) -> str:
        """For people."""
        first = f"node {self.node}: {self.verdict}" + (f": {self.reason}" if self.reason else "")
        return "\n".join([first, *(f"  {line}" for line in self.lines())])

    def lines(self) -> Iterator[str]:
        """For people: the reasons for the verdict."""
        for problem in self.pools:
            yield problem.text()
        for request in self.requests:
            yield from request.lines()
        if self.stuck is not None:
            yield f"stuck at claim {self.stuck.claim}, request {self.stuck.request}: {self.stuck.cause}"

    def anonymous(self) -> Explanation:
        """The explanation without the names of node, pools and devices, and without the work. Equal for nodes that are
        refused for the same reasons.
        """
        return msgspec.structs.replace(
            self,
            node="",
            requests=tuple(map(_anonymous, self.requests)),
            pools=tuple(msgspec.structs.replace(found, pool="", problem="") for found in self.pools),
            steps=0,
        )


def _anonymous(request: RequestExplanation) -> RequestExplanation:
    losses = tuple(msgspec.structs.replace(loss, names=()) for loss in request.losses)
    return msgspec.structs.replace(request, losses=losses)
