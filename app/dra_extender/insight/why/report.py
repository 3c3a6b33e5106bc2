"""The answer to "why is this pod not scheduled", as structs.

Promises: contains only texts, numbers and these structs, so it can be encoded as it is. A group of nodes has a count
and a few names. Only `summary` and `text` write sentences about it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dra_extender.allocation.plan import Feasibility, PoolProblem, Rule
from dra_extender.allocation.tally import ConstraintTally, RequestTally
from dra_extender.placement.ranking import Account
from dra_extender.scheduling.noderules import NodeRule, Obstacle

PodRule = Literal[
    "scheduling gate", "scheduler", "claim missing", "claim not created", "class missing", "feature gate",
    "claim leaving", "claim in flight", "claim full", "claim unreadable", "claim", "no nodes",
]  # fmt: skip
"""Why a pod cannot be scheduled, whatever the nodes are."""

BindingRule = Literal["", "offered", "together", "pools", "search"] | Rule | NodeRule | PodRule
"""The first rule that the pod fails on the nodes where it comes closest to fitting. "offered": a node has fewer devices
of the class than requested; "together": only all requests together need too many devices. Empty for a pod that fits.
"""

DiagnosisState = Literal["fits", "refused", "bound", "error"]

ChangeKind = Literal[
    "count", "capacity", "toleration", "selector", "class", "constraint", "name", "resources", "pod toleration",
    "node selector", "node affinity", "uncordon", "gate", "scheduler", "pod ends", "pod deleted", "claim deleted",
    "claim made again", "node added",
]  # fmt: skip


class HoldingClaim(msgspec.Struct, frozen=True):
    """A claim (namespace/name) that holds `devices` devices of the node; `pods` (namespace/name) use it."""

    claim: str
    pods: tuple[str, ...]
    devices: int
    in_flight: bool = False


class DiagnosedRequest(msgspec.Struct, frozen=True):
    """The tally of a request, and the claims that hold its devices. `rule`: after it too few devices were left."""

    tally: RequestTally
    rule: BindingRule = ""
    holders: tuple[HoldingClaim, ...] = ()


class NodeGroup(msgspec.Struct, frozen=True):
    """`count` nodes with the same outcome; `nodes` are the first few. `verdict` is about devices; the pod fits if there
    are no `obstacles` either. `requests` and the fields below are about `example`, one of the nodes.
    """

    count: int
    nodes: tuple[str, ...]
    verdict: Feasibility
    reason: str
    obstacles: tuple[Obstacle, ...] = ()
    examined: bool = True
    example: str = ""
    requests: tuple[DiagnosedRequest, ...] = ()
    constraints: tuple[ConstraintTally, ...] = ()
    pools: tuple[PoolProblem, ...] = ()
    cause: str = ""
    """Where the search stopped, if no rule alone explains it."""
    wanted: int = 0
    available: int = 0
    """Devices that all requests without alternatives need together, and that the node has for them."""

    @property
    def fits(self) -> bool:
        return self.verdict == "fits" and not self.obstacles


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of one object. `op`: replace, add or remove at `path` (a JSON pointer), create or delete the object,
    or wait until it is deleted. `value` is the new value, or the object to create.
    """

    kind: ChangeKind
    object: str
    name: str
    namespace: str = ""
    op: Literal["replace", "add", "remove", "create", "delete", "wait"] = "replace"
    path: str = ""
    value: Any = None
    like: str = ""
    """The object that an object to create resembles."""


class Remedy(msgspec.Struct, frozen=True):
    """Changes after which the pod fits `nodes` nodes, one of them `example`: verified by a hypothetical decision.
    `text` says what to do, `short` the same for an event; `yaml` is what to write, if that is more than a word.
    """

    text: str
    short: str
    changes: tuple[Change, ...]
    nodes: int
    example: str
    yaml: str = ""


class ClaimState(msgspec.Struct, frozen=True):
    """A claim of the pod (namespace/name). `template`: the template it was created from."""

    claim: str
    entry: str
    template: str = ""
    allocated: tuple[str, ...] | None = None
    """driver/pool/device; None while it is not allocated."""
    consumers: int = 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`summary` is one sentence about the binding `rule`, and `claim` the claim that causes it, if one does. The pod
    fits `fits` nodes, of which `examples` are the first; `devices_fit` nodes have devices for it.
    """

    pod: str
    uid: str
    state: DiagnosisState
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
    """Rules of kube-scheduler that were not checked."""
    complete: bool = True
    """False: some nodes or changes were not tried, because the work is limited."""
    work: int = 0
    """Hypothetical decisions that were made."""
    placement: Account | None = None
    """Which of the nodes that fit the placement policy prefers; only in answers of `explaining`."""
    preemption: str = ""
    """Which pods this pod would preempt, or why none; only in answers of `explaining`."""
