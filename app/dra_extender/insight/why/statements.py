"""What a diagnosis asserts about a refused pod, as data: what is missing, on which nodes, and which claims hold it.

Promises: a statement about several nodes holds on each of them. A statement about no node ("no node has …") holds on
all nodes that were compared; their number is in the statement. A statement names no node that it is not
about. `wording` makes the text, and only from these structs. `rule` is the rule that the pod fails, `claim`
(namespace/name) the claim that is the cause; it is empty if no single claim is.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec

from dra_extender.allocation.plan import Rule
from dra_extender.allocation.tally import CapacityTally, CounterTally, RuleCount, TaintTally
from dra_extender.scheduling.noderules import NodeRule, Obstacle

PodRule = Literal[
    "scheduling gate", "scheduler", "claim missing", "claim not created", "class missing", "feature gate", "gang",
    "claim leaving", "claim in flight", "claim failed", "claim full", "claim unreadable", "claim", "no nodes",
    "service",
]  # fmt: skip
"""Why a pod cannot be scheduled, whatever the nodes are."""

BindingRule = Literal["", "offered", "no node has all", "together", "pools", "search"] | Rule | NodeRule | PodRule
"""The first rule that the pod fails on the nodes where it comes closest to fitting. "offered": a node has fewer devices
of the class than requested; "no node has all": each request has devices on some node, but all have them on none;
"together": only all requests together need too many devices. Empty for a pod that fits.
"""


MISMATCH: Final[frozenset[Rule]] = frozenset(("binding conditions", "class", "selector", "node", "error"))
"""Rules that exclude a device whatever else is allocated, and whatever the request tolerates."""


class HoldingClaim(msgspec.Struct, frozen=True):
    """A claim (namespace/name) that uses devices of the node. `devices`: their number. `pods`: the pods
    (namespace/name) that use the claim. `in_flight`: its allocation is decided, but not yet stored.
    """

    claim: str
    pods: tuple[str, ...]
    devices: int
    in_flight: bool = False


class Scope(msgspec.Struct, frozen=True):
    """`count` of the `compared` nodes. `nodes`: the first of them. `claims`: those (namespace/name) that are allocated
    on the only node, and exclude all others.
    """

    count: int
    compared: int
    nodes: tuple[str, ...]
    claims: tuple[str, ...] = ()


class Requested(msgspec.Struct, frozen=True):
    """What a request, or one of its alternatives, asks for. `claim`: namespace/name. `label`: the name that users know
    the claim by, followed by the request if the claim has several. `wanted`: the number of devices; all devices that
    match if `all`. `selectors`: the request has its own selectors, in addition to the selectors of the class.
    """

    claim: str
    request: str
    label: str
    class_name: str
    wanted: int
    all: bool = False
    selectors: bool = False


class PodRefused(msgspec.Struct, frozen=True, tag="pod refused"):
    """A fact about the pod or one of its claims that excludes all nodes, or about nodes that start, as a sentence."""

    rule: BindingRule
    text: str
    claim: str = ""


class _AboutRequest(msgspec.Struct, frozen=True):
    requested: Requested

    @property
    def claim(self) -> str:
        return self.requested.claim


class ClassEmpty(_AboutRequest, frozen=True, tag="class empty"):
    """None of the `compared` nodes has a device of the class. `pools`: their pools that cannot be used, and why."""

    compared: int
    pools: tuple[str, ...] = ()

    @property
    def rule(self) -> BindingRule:
        return "pools" if self.pools else "class"


class NothingMatches(_AboutRequest, frozen=True, tag="nothing matches"):
    """No device of the class, on any of the `compared` nodes, satisfies all of these `clauses` of the selectors.
    `values`: what the devices have where the only clause reads; `more`: not all values are listed.
    """

    rule: ClassVar[BindingRule] = "selector"
    compared: int
    clauses: tuple[str, ...]
    values: tuple[str, ...] = ()
    more: bool = False


class TooFew(_AboutRequest, frozen=True, tag="too few"):
    """None of the `compared` nodes has more than `most` devices that match. `clauses`: those of the selectors that
    exclude devices of the class. `node`: one that has `most`, if the pod fails another rule there.
    """

    compared: int
    most: int
    clauses: tuple[str, ...] = ()
    node: str = ""

    @property
    def rule(self) -> BindingRule:
        return "selector" if self.clauses else "offered"


class MatchingNodes(msgspec.Struct, frozen=True):
    """`count` nodes have enough devices that match the request, in use or not. `node`: one of them."""

    requested: Requested
    count: int
    node: str


class NoNodeHasAll(msgspec.Struct, frozen=True, tag="no node has all"):
    """Each request has enough devices that match on some node, but all have them on none of the `compared` nodes."""

    rule: ClassVar[BindingRule] = "no node has all"
    places: tuple[MatchingNodes, ...]
    compared: int

    @property
    def claim(self) -> str:
        claims = {place.requested.claim for place in self.places}
        return claims.pop() if len(claims) == 1 else ""


class DevicesUnavailable(_AboutRequest, frozen=True, tag="devices unavailable"):
    """Each node of the scope has `matching` devices that match. Each rule excludes that many of them, the first that
    applies; `left` remain, fewer than requested. `holders`: claims that use devices of the first node of the scope.
    `constraints`: those of the request, such as "matchAttribute resource.kubernetes.io/pcieRoot".
    """

    scope: Scope
    rule: BindingRule
    matching: int
    losses: tuple[RuleCount, ...]
    left: int
    taints: tuple[TaintTally, ...] = ()
    capacities: tuple[CapacityTally, ...] = ()
    counters: tuple[CounterTally, ...] = ()
    holders: tuple[HoldingClaim, ...] = ()
    constraints: tuple[str, ...] = ()


class ConstraintUnmet(msgspec.Struct, frozen=True, tag="constraint unmet"):
    """On each node of the scope, at most `best` of the devices that could be allocated satisfy the constraint together.
    `wanted`: how many have to. `missing`: how many of the devices lack the attribute. `holders`: claims that use
    devices of the first node that match.
    """

    rule: ClassVar[BindingRule] = "constraint"
    claim: str
    label: str
    scope: Scope
    kind: Literal["matchAttribute", "distinctAttribute"]
    attribute: str
    wanted: int
    best: int
    holders: tuple[HoldingClaim, ...] = ()
    missing: int = 0


class TogetherTooFew(msgspec.Struct, frozen=True, tag="together too few"):
    """Each node of the scope has `available` devices that could be allocated; the requests need `wanted` together.
    `holders`: claims that use devices of the first node that match.
    """

    rule: ClassVar[BindingRule] = "together"
    claim: str
    label: str
    scope: Scope
    wanted: int
    available: int
    holders: tuple[HoldingClaim, ...] = ()


class Unsatisfiable(msgspec.Struct, frozen=True, tag="unsatisfiable"):
    """On no node of the scope do devices satisfy the requests together; the `cause` says why. `holders`: the claims
    that use the counter that it names; if it names none, `others` use devices that match. `constraints`: as in
    `DevicesUnavailable`. Without a label, the cause is the error of the scheduler.
    """

    claim: str
    label: str
    scope: Scope
    cause: str
    rule: BindingRule = "search"
    holders: tuple[HoldingClaim, ...] = ()
    constraints: tuple[str, ...] = ()
    others: tuple[HoldingClaim, ...] = ()


class SelectorFails(_AboutRequest, frozen=True, tag="selector fails"):
    """A selector of the class or the request cannot be evaluated for this device. `clause`: the part of the selector
    that fails; empty if it is not known.
    """

    rule: ClassVar[BindingRule] = "error"
    source: Literal["class", "request", "node"]
    problem: str
    device: str
    clause: str = ""


class NodesExcluded(msgspec.Struct, frozen=True, tag="nodes excluded"):
    """Each node of the scope is excluded by each of these rules. `devices`: it has devices for the pod. An obstacle of
    several nodes has the largest amount that one of them has left. `labels`: the claims that these devices are for, if
    another claim of the pod is what excludes the nodes.
    """

    scope: Scope
    obstacles: tuple[Obstacle, ...]
    devices: bool
    labels: tuple[str, ...] = ()

    @property
    def rule(self) -> BindingRule:
        return self.obstacles[0].rule

    @property
    def claim(self) -> str:
        return self.obstacles[0].what if self.rule == "claim elsewhere" else ""


class GangPlace(msgspec.Struct, frozen=True):
    """Where a pod (namespace/name) of a gang fits, and its devices (driver/pool/device) there."""

    pod: str
    node: str
    devices: tuple[str, ...]


OwnStatement = (
    PodRefused
    | ClassEmpty
    | NothingMatches
    | TooFew
    | NoNodeHasAll
    | DevicesUnavailable
    | ConstraintUnmet
    | TogetherTooFew
    | Unsatisfiable
    | SelectorFails
    | NodesExcluded
)
"""About one pod."""


class GangUnplaced(msgspec.Struct, frozen=True, tag="gang unplaced"):
    """Of the gang's pods that wait, no more than those in `places` fit at the same time, and it needs `needed` of them,
    because `placed` pods have nodes. All its pods need one value of each of the `labels` of nodes, and their devices
    one of each of the `attributes`. `pod` (namespace/name): another of its pods; `reasons`: why it fits no node while
    these pods have their places.
    """

    rule: ClassVar[BindingRule] = "gang"
    claim: ClassVar[str] = ""
    gang: str
    placed: int
    needed: int
    places: tuple[GangPlace, ...]
    labels: tuple[str, ...] = ()
    pod: str = ""
    reasons: tuple[OwnStatement, ...] = ()
    attributes: tuple[str, ...] = ()


Statement = OwnStatement | GangUnplaced
