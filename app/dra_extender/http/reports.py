"""The answers of insight as JSON: their schema, and how each is made of what the house knows.

Promises: one model per answer, in `/openapi.json`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dra_extender.allocation.plan import Explanation
from dra_extender.devices.holders import Holder, holders
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.pools import Pool
from dra_extender.devices.readonly import ReadOnlyLedger
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


class Group(BaseModel):
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


class Choice(BaseModel):
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
    groups: list[Group]
    error: str
    placement: Choice | None = Field(description="null: no policy but first-fit is in force, or the pod fits nowhere")
    preemption: str = Field(
        description="whom the pod would preempt, or why nobody; empty: it fits, or preemption is off"
    )


class HolderReport(BaseModel):
    """A claim that has a device, or a share of it."""

    claim: str = Field(description="namespace/name")
    share: str | None = Field(default=None, description="ID of the share; null: the whole device")
    consumed: dict[str, str] = Field(default_factory=dict, description="capacity taken by the share")
    pods: list[str] = Field(description="names of the consumers that the claim is reserved for")
    in_flight: bool = Field(description="decided by a bind under way; the API server does not have it yet")


class DeviceReport(BaseModel):
    name: str
    holders: list[HolderReport] = Field(description="empty: the device is free")


class PoolReport(BaseModel):
    """A pool as its node sees it."""

    driver: str
    name: str
    problem: str = Field(description="why its devices are left out; empty when they are not")
    devices: list[DeviceReport]


class NodeReport(BaseModel):
    name: str
    problem: str = Field(description="why nothing can be decided for the node; empty when it can")
    pools: list[PoolReport]


class Inventory(BaseModel):
    """A page of nodes in the order of their names."""

    nodes: list[NodeReport]
    next: str = Field(description="pass it as `after` to get the next page; empty: this was the last")


ProblemKind = Literal["object", "unfinished", "conflict", "permission"]


class Problem(BaseModel):
    kind: ProblemKind = Field(
        description="object: one that cannot be used; unfinished: something that could not be taken back; "
        "conflict: claims that hold what others hold; permission: one that the service lacks"
    )
    object: str = Field(description="kind and name")
    problem: str
    what_to_do: str


class Problems(BaseModel):
    """`total` counts those that are not shown as well."""

    total: int
    problems: list[Problem]


class Unanswered(BaseModel):
    """A question without an answer."""

    detail: str = Field(description="what is wrong")


# --- explain ----------------------------------------------------------------------------------------------------------


def pod_report(found: PodExplanation) -> PodReport:
    return PodReport(
        pod=found.pod,
        state=found.state,
        claims=list(found.claims),
        fits=list(found.fits),
        groups=list(map(_group, found.groups)),
        error=found.error,
        placement=Choice.model_validate(found.placement) if found.placement is not None else None,
        preemption=found.preemption,
    )


def _group(found: NodeGroup) -> Group:
    details = _details(found.example) if found.example is not None else None
    return Group(reason=found.reason, nodes=list(found.nodes), examined=found.examined, details=details)


def _details(found: Explanation) -> Details:
    return Details(
        text="\n".join(found.lines()),
        node=found.node,
        requests=[RequestReport.model_validate(request) for request in found.requests],
        stuck=StuckReport.model_validate(found.stuck) if found.stuck is not None else None,
        pools=[PoolProblemReport.model_validate(pool) for pool in found.pools],
    )


# --- inventory --------------------------------------------------------------------------------------------------------


def node_report(view: NodeView, ledger: ReadOnlyLedger) -> NodeReport:
    """The node with all of its pools."""
    return NodeReport(name=view.node, problem=view.error, pools=[_pool_report(pool, ledger) for pool in view.pools])


def _pool_report(pool: Pool, ledger: ReadOnlyLedger) -> PoolReport:
    driver, name = pool.id
    in_use = ledger.in_use(pool.id)
    return PoolReport(
        driver=driver,
        name=name,
        problem=pool.problem,
        devices=[_device_report(device, holders(ledger, in_use.get(device))) for device in pool.names],
    )


def _device_report(name: str, found: Iterable[Holder]) -> DeviceReport:
    return DeviceReport(name=name, holders=[_holder_report(holder) for holder in found])


def _holder_report(holder: Holder) -> HolderReport:
    return HolderReport(
        claim=holder.claim,
        share=holder.share,
        consumed={capacity: str(amount) for capacity, amount in holder.consumed.items()},
        pods=list(holder.pods),
        in_flight=holder.in_flight,
    )
