"""The answers of insight as JSON: their schema, and how each is made of what the house knows.

Promises: one model per answer, in `/openapi.json`; nothing is decided here.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dra_extender.allocation.plan import Explanation
from dra_extender.scheduling.verbs.explain import NodeGroup, PodExplanation


class LossReport(BaseModel):
    """Devices that a rule took away from a request."""

    model_config = ConfigDict(from_attributes=True)

    rule: str
    count: int
    names: list[str] = Field(description="driver/pool/device of the first few")


class RequestReport(BaseModel):
    """What became of a request's devices before the search began."""

    model_config = ConfigDict(from_attributes=True)

    claim: str = Field(description="namespace/name")
    request: str = Field(description="name of the request, or request/alternative")
    wanted: int
    pooled: int = Field(description="devices in the usable pools of the node")
    losses: list[LossReport]
    left: int = Field(description="devices that no rule took away")


class StuckReport(BaseModel):
    """The request that the search could not get past."""

    model_config = ConfigDict(from_attributes=True)

    claim: str = Field(description="namespace/name")
    request: str
    cause: str
    after: list[str] = Field(description="per alternative the rule that left too few devices, or pools")


class PoolProblemReport(BaseModel):
    """A pool whose devices are left out."""

    model_config = ConfigDict(from_attributes=True)

    driver: str
    pool: str
    incomplete: bool = Field(description="true: slices are missing; false: they are invalid")
    problem: str


class Details(BaseModel):
    """The search's account of `node`; the other nodes of the group differ from it in names only."""

    text: str = Field(description="all of it, for people")
    node: str
    requests: list[RequestReport]
    stuck: StuckReport | None
    pools: list[PoolProblemReport]


class GroupReport(BaseModel):
    """Nodes that refuse the pod for one reason."""

    reason: str
    nodes: list[str]
    examined: bool = Field(description="false: these nodes were not searched again, there were too many")
    details: Details | None = Field(description="null: the search has nothing to say about these nodes")


class NodeChoice(BaseModel):
    """What a node would cost the placement policy."""

    model_config = ConfigDict(from_attributes=True)

    node: str
    cost: float = Field(description="less is better")
    terms: list[str] = Field(description="why, for people")


class PlacementReport(BaseModel):
    """Which of the nodes that fit a placement policy prefers."""

    model_config = ConfigDict(from_attributes=True)

    policy: str
    basis: str = Field(description="what the costs are, in words")
    nodes: list[NodeChoice] = Field(description="the best ones, the chosen one first")
    devices: list[str] = Field(description="driver/pool/device that the pod would get on the chosen node")
    first: list[str] = Field(description="what it would get there without the policy")


class PodReport(BaseModel):
    """Why a pod does not fit. `error` aborts the attempt on all nodes; then there are no groups."""

    pod: str
    state: str
    claims: list[str]
    fits: list[str]
    groups: list[GroupReport]
    error: str
    placement: PlacementReport | None = Field(
        description="null: no policy but first-fit is in force, or the pod fits nowhere"
    )
    preemption: str = Field(
        description="whom the pod would preempt, or why nobody; empty: it fits, or preemption is off"
    )


def pod_report(found: PodExplanation) -> PodReport:
    return PodReport(
        pod=found.pod,
        state=found.state,
        claims=list(found.claims),
        fits=list(found.fits),
        groups=list(map(_group, found.groups)),
        error=found.error,
        placement=PlacementReport.model_validate(found.placement) if found.placement is not None else None,
        preemption=found.preemption,
    )


def _group(found: NodeGroup) -> GroupReport:
    details = _details(found.example) if found.example is not None else None
    return GroupReport(reason=found.reason, nodes=list(found.nodes), examined=found.examined, details=details)


def _details(found: Explanation) -> Details:
    return Details(
        text="\n".join(found.lines()),
        node=found.node,
        requests=[RequestReport.model_validate(request) for request in found.requests],
        stuck=StuckReport.model_validate(found.stuck) if found.stuck is not None else None,
        pools=[PoolProblemReport.model_validate(pool) for pool in found.pools],
    )
