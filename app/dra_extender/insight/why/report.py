"""The answer to "why is this pod not scheduled", as structs.

Promises: contains only texts, numbers and these structs, so it can be encoded as it is. A group of nodes has a count
and a few names. `wording` and `text` write sentences about it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dra_extender.allocation.plan import Feasibility, PoolProblem
from dra_extender.allocation.tally import ConstraintTally, RequestTally
from dra_extender.insight.why.statements import BindingRule, HoldingClaim, Statement
from dra_extender.scheduling.noderules import Obstacle

DiagnosisState = Literal["fits", "refused", "bound", "error"]

ChangeKind = Literal[
    "count", "capacity", "toleration", "selector", "class", "constraint", "name", "resources", "pod toleration",
    "node selector", "node affinity", "uncordon", "gate", "scheduler", "pod ends", "pod deleted", "claim deleted",
    "claim made again", "node added", "gang size", "topology",
]  # fmt: skip
ChangeOp = Literal["replace", "add", "remove", "create", "delete", "wait"]


class DiagnosedRequest(msgspec.Struct, frozen=True):
    """The `tally` of a request. `rule`: the first rule that leaves too few devices. `holders`: the claims that use
    devices of the request.
    """

    tally: RequestTally
    rule: BindingRule = ""
    holders: tuple[HoldingClaim, ...] = ()


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes with the same result. `count`: their number. `nodes`: the first of them. `verdict`: whether they have
    devices for the pod; `reason`: why not. `obstacles`: what else keeps the pod from these nodes. Not `examined`: the
    details were not computed. `requests` and the fields that follow describe one of the nodes, `example`.
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
    """Why the search found no solution, if each request alone has enough devices."""
    holders: tuple[HoldingClaim, ...] = ()
    """The claims that use the counter that the cause names."""
    wanted: int = 0
    available: int = 0
    """The requests without alternatives that share no device need `wanted` together; `available` are left for them."""

    @property
    def fits(self) -> bool:
        return self.verdict == "fits" and not self.obstacles

    @property
    def fails(self) -> bool:
        """The scheduler decides on no node at all, because the decision on one of these is an error."""
        return self.verdict == "error" and not self.obstacles


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of one object. `op`: replace, add or remove the field at `path` (a JSON pointer); create or delete the
    object; or wait until another component deletes it. `value`: the new value, or the object to create.
    """

    kind: ChangeKind
    object: str
    name: str
    namespace: str = ""
    op: ChangeOp = "replace"
    path: str = ""
    value: Any = None
    like: str = ""
    """The existing object that the new object is a copy of."""


class Remedy(msgspec.Struct, frozen=True):
    """A verified suggestion: after these `changes` the pod fits. `nodes`: the number of nodes that it fits. `example`:
    one of them. `text`: the suggestion as a sentence. `short`: the same in fewer words, for an event. `yaml`: the lines
    to add to the manifest, if `text` does not contain them, and where. `commands`: what to type, in order. `weakens`:
    the pod then asks for less, for something else, or tolerates tainted devices. `pods`: of its gang, how many fit
    together then, on `nodes` nodes; 0 for a pod without a gang.
    """

    text: str
    short: str
    changes: tuple[Change, ...]
    nodes: int
    example: str
    yaml: str = ""
    commands: tuple[str, ...] = ()
    weakens: bool = False
    pods: int = 0


class ClaimState(msgspec.Struct, frozen=True):
    """A claim of the pod (namespace/name). `entry`: the name that users know it by. `template`: the template that it
    was created from. `consumers`: the number of pods that it is reserved for.
    """

    claim: str
    entry: str
    template: str = ""
    allocated: tuple[str, ...] | None = None
    """driver/pool/device; None while it is not allocated."""
    consumers: int = 0


class Preempted(msgspec.Struct, frozen=True):
    """The `pods` (namespace/name) that the pod would preempt on the `node` for the `devices` (driver/pool/device).
    Without pods, the `reason`.
    """

    pods: tuple[str, ...] = ()
    node: str = ""
    devices: tuple[str, ...] = ()
    reason: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pod fits, and if not, why. `statements`: why it does not fit, the nodes where it comes closest to
    fitting first. `rule`: the first rule that the pod fails there. `summary`: the statements as text, or why a pod that
    fits was not bound. `claim`: the claim that causes it, if one does. `nodes`: the number of nodes that were checked.
    `fits`: how many of them the pod fits. `examples`: the first of these. `devices_fit`: how many have devices for it.
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
    statements: tuple[Statement, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Rules of kube-scheduler that were not checked."""
    complete: bool = True
    """False: some nodes were not compared, or some changes not tried and none found that helps, because the work is
    limited.
    """
    work: int = 0
    """Hypothetical decisions that were made."""
    preemption: Preempted | None = None
    """Which pods this pod would preempt, or why none; only in answers of `explaining`."""
