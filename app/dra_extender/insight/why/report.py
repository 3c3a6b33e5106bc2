"""What a diagnosis says: structs for JSON and for people.

Promises: everything in it is a text, a number, or one of these structs, so that it can be encoded as it is. Nodes are
told by number and a few names; nodes of which the same is to be said stand together.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dra_extender.allocation.plan import Feasibility, PoolProblem, Rule
from dra_extender.allocation.tally import RequestTally
from dra_extender.placement.ranking import Account
from dra_extender.scheduling.noderules import NodeRule, Obstacle

PodRule = Literal[
    "scheduling gate", "scheduler", "claim missing", "claim not created", "class missing", "feature gate",
    "claim leaving", "claim in flight", "claim full", "claim unreadable", "claim", "no nodes",
]  # fmt: skip
"""What keeps a pod from all nodes."""

BindingRule = Literal["", "offered", "together", "pools", "search"] | Rule | NodeRule | PodRule
"""The rule that a pod fails first where it comes closest to fitting: "offered" when a node has fewer devices of the
class than are wanted, "together" when only the requests together want too much. Empty for a pod that fits.
"""

State = Literal["fits", "refused", "bound", "error"]

ChangeKind = Literal[
    "count", "capacity", "toleration", "selector", "class", "constraint", "name", "resources", "pod toleration",
    "node selector", "node affinity", "uncordon", "gate", "scheduler", "pod ends", "pod deleted", "claim deleted",
    "claim made again", "node added",
]  # fmt: skip


class Holder(msgspec.Struct, frozen=True):
    """A claim (namespace/name) that has `devices` of the node; `pods` (namespace/name) use it."""

    claim: str
    pods: tuple[str, ...]
    devices: int
    in_flight: bool = False


class Constraint(msgspec.Struct, frozen=True):
    """Requests of a claim want `wanted` devices that satisfy the constraint together; `best` is the most there is."""

    claim: str
    index: int
    kind: str
    attribute: str
    requests: tuple[str, ...]
    wanted: int
    best: int
    missing: int


class Request(msgspec.Struct, frozen=True):
    """The tally of a request, with who holds what is in use. `rule`: the one after which too few devices were left."""

    tally: RequestTally
    rule: BindingRule = ""
    holders: tuple[Holder, ...] = ()


class NodeGroup(msgspec.Struct, frozen=True):
    """`count` nodes of which the same can be said; `nodes` are the first few. Devices fit when `verdict` says so; the
    pod fits when there are no `obstacles` either. `requests` and all below are about `example`, one of the nodes.
    """

    count: int
    nodes: tuple[str, ...]
    verdict: Feasibility
    reason: str
    obstacles: tuple[Obstacle, ...] = ()
    examined: bool = True
    example: str = ""
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    pools: tuple[PoolProblem, ...] = ()
    cause: str = ""
    """What the search could not get past, when no rule alone explains it."""
    wanted: int = 0
    available: int = 0
    """Devices that the requests without alternatives want together, and that there are for them."""

    @property
    def fits(self) -> bool:
        return self.verdict == "fits" and not self.obstacles


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of one object. `op`: replace, add or remove at `path`, a JSON pointer; or create or delete the object,
    or wait until somebody else does. `value` is what comes there, or the object to create.
    """

    kind: ChangeKind
    object: str
    name: str
    namespace: str = ""
    op: Literal["replace", "add", "remove", "create", "delete", "wait"] = "replace"
    path: str = ""
    value: Any = None
    like: str = ""
    """Of an object to create: the one that it resembles."""


class Remedy(msgspec.Struct, frozen=True):
    """Changes after which the pod fits `nodes` nodes, `example` among them: decided, not guessed. `text` says what to
    do, `short` the same for an event; `yaml` is what to write, where that is more than a word.
    """

    text: str
    short: str
    changes: tuple[Change, ...]
    nodes: int
    example: str
    yaml: str = ""


class ClaimState(msgspec.Struct, frozen=True):
    """A claim of the pod (namespace/name). `template`: the one it was made from."""

    claim: str
    entry: str
    template: str = ""
    allocated: tuple[str, ...] | None = None
    """driver/pool/device; None while it is not allocated."""
    consumers: int = 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. `summary` is one sentence about the binding `rule`; `claim` is to blame for it, if one is.
    `fits` nodes can have the pod, `examples` are the first of them; `devices_fit` have devices for it.
    """

    pod: str
    uid: str
    state: State
    rule: BindingRule
    summary: str
    claim: str = ""
    nodes: int = 0
    fits: int = 0
    examples: tuple[str, ...] = ()
    devices_fit: int = 0
    claims: tuple[ClaimState, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Rules of kube-scheduler that were not looked at."""
    complete: bool = True
    """False: some nodes or changes were not looked at, for want of time."""
    work: int = 0
    """Hypothetical decisions that were made."""
    placement: Account | None = None
    """Which of the nodes that fit the placement policy prefers, when it was asked."""
