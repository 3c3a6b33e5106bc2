"""What people may ask the running service: why a pod waits, what devices there are and who holds them, what is wrong.

Promises: the answers come from the state that the verbs decide on, and asking changes no decision. Long answers are
made in small steps or in pages, one at a time, so that the verbs go on meanwhile, in clusters of thousands of nodes as
well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import APIRouter, Header, HTTPException, Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from app.api.core import Pod
from app.devices.audit import Violation
from app.devices.pools import Pool
from app.devices.usage import DeviceUse
from app.scheduling.verbs.explain import PodExplanation, explaining
from app.scheduling.view import View

MOST_NODES = 500
MOST_DEVICES = 5_000
"""A page of the inventory ends after the node with which it has so many devices."""
MOST_PROBLEMS = 1_000

T = TypeVar("T")


class Insight(Protocol):
    """The service as seen from here."""

    def unknown(self) -> str:
        """Why nothing can be said about the cluster yet; empty when it can."""

    @property
    def view(self) -> View:
        """What questions may read. Asked for only when something is known."""

    def violations(self) -> Sequence[Violation]:
        """Claims that hold what others hold."""

    def missing_permissions(self) -> Sequence[str]:
        """What the API server does not allow the service."""


# --- answers ----------------------------------------------------------------------------------------------------------


class Group(BaseModel):
    """Nodes that refuse the pod for one reason; `details` is the search's account of one of them."""

    reason: str
    nodes: list[str]
    details: str


class PodReport(BaseModel):
    """Why a pod does not fit. `error` aborts the attempt on all nodes; then there are no groups."""

    pod: str
    state: str
    claims: list[str]
    fits: list[str]
    groups: list[Group]
    error: str


class Holder(BaseModel):
    """A claim that has a device, or a share of it."""

    claim: str = Field(description="namespace/name")
    share: str | None = Field(default=None, description="ID of the share; null: the whole device")
    consumed: dict[str, str] = Field(default_factory=dict, description="capacity taken by the share")
    pods: list[str] = Field(description="names of the consumers that the claim is reserved for")
    in_flight: bool = Field(description="decided by a bind under way; the API server does not have it yet")


class DeviceReport(BaseModel):
    name: str
    holders: list[Holder] = Field(description="nobody: the device is free")


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


class Problem(BaseModel):
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


# --- routes -----------------------------------------------------------------------------------------------------------

_UNKNOWN_YET: dict[int | str, dict[str, Any]] = {503: {"model": Unanswered, "description": "nothing is known yet"}}
_UNANSWERED: dict[int | str, dict[str, Any]] = {
    400: {"model": Unanswered, "description": "a parameter is missing or malformed"},
    404: {"model": Unanswered, "description": "no such pod or node"},
    "4XX": {"model": Unanswered, "description": "any other mistake in the question"},
}


def _pod_key(given: str) -> str:
    """Raises what becomes a 400."""
    namespace, slash, name = given.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise PydanticCustomError("pod_key", "must be NAMESPACE/NAME")
    return given


PodKey = Annotated[
    str, AfterValidator(_pod_key), Query(description="NAMESPACE/NAME", json_schema_extra={"pattern": "^[^/]+/[^/]+$"})
]


def insight_router(insight: Insight) -> APIRouter:
    """The routes below /insight."""
    router = APIRouter(prefix="/insight", tags=["insight"], responses=_UNKNOWN_YET)
    turn = asyncio.Lock()

    def view() -> View:
        unknown = insight.unknown()
        if unknown:
            raise HTTPException(503, f"dra-extender: {unknown}")
        return insight.view

    @router.get(
        "/explain",
        response_model=PodReport,
        responses=_UNANSWERED | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def explain(
        pod: PodKey,
        node: Annotated[list[str] | None, Query(description="only this node; may be repeated")] = None,
        accept: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response | PodReport:
        """Why does this pod not fit? The decision that filter would make now, node by node: text for people, or JSON
        when `Accept` names application/json.
        """
        known = view()
        found = _find_pod(known, pod)
        names = _find_nodes(known, node)
        async with turn:
            explanation = await _stepwise(explaining(known, found, names))
        if "application/json" in accept.lower():
            return _report(explanation)
        return PlainTextResponse(explanation.text() + "\n")

    @router.get("/inventory", responses=_UNANSWERED)
    async def inventory(
        node: Annotated[list[str] | None, Query(description="only this node; may be repeated")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_NODES, description="nodes in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Inventory:
        """Nodes, their pools, their devices, and who holds them."""
        known = view()
        names = [name for name in _find_nodes(known, node) if name > after]
        async with turn:
            return await _stepwise(_inventory(known, names, limit))

    @router.get("/problems")
    async def problems() -> Problems:
        """Objects that cannot be used, claims that conflict, missing permissions, and what to do about each."""
        found = [*_objects(view()), *_conflicts(insight.violations()), *_permissions(insight.missing_permissions())]
        return Problems(total=len(found), problems=found[:MOST_PROBLEMS])

    return router


async def _stepwise(steps: Generator[None, None, T]) -> T:
    """What the steps return at the end; between any two of them everything else gets its turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def _find_pod(view: View, key: str) -> Pod:
    """Raises HTTPException."""
    namespace, _, name = key.partition("/")
    pod = view.pods.named(namespace, name)
    if pod is None:
        raise HTTPException(404, f"pod {key} is not known: it does not exist, or has finished")
    return pod


def _find_nodes(view: View, names: Sequence[str] | None) -> list[str]:
    """These nodes, or all, in the order of their names. Raises HTTPException."""
    nodes = view.cluster.nodes
    for name in names or ():
        if name not in nodes:
            raise HTTPException(404, f"node {name} is not known")
    return sorted(set(names) if names else nodes)


def _report(found: PodExplanation) -> PodReport:
    return PodReport(
        pod=found.pod,
        state=found.state,
        claims=list(found.claims),
        fits=list(found.fits),
        groups=[Group(reason=group.reason, nodes=list(group.nodes), details=group.details) for group in found.groups],
        error=found.error,
    )


# --- inventory --------------------------------------------------------------------------------------------------------


def _inventory(view: View, names: Sequence[str], limit: int) -> Generator[None, None, Inventory]:
    """One page, a node at a step. Nodes that go meanwhile are left out."""
    reports: list[NodeReport] = []
    devices = 0
    for index, name in enumerate(names):
        if len(reports) >= limit or devices >= MOST_DEVICES:
            return Inventory(nodes=reports, next=names[index - 1])
        node = view.cluster.inventory.view(name)
        if node is not None:
            devices += len(node.devices)
            pools = [_pool(view, pool) for pool in node.pools]
            reports.append(NodeReport(name=name, problem=node.error, pools=pools))
        yield
    return Inventory(nodes=reports, next="")


def _pool(view: View, pool: Pool) -> PoolReport:
    driver, name = pool.id
    in_use = view.ledger.in_use(pool.id)
    incomplete = "not all of its slices are published yet" if pool.incomplete else ""
    return PoolReport(
        driver=driver,
        name=name,
        problem=pool.invalid or incomplete,
        devices=[
            DeviceReport(name=device.id[2], holders=list(_holders(view, in_use.get(device.id[2]))))
            for device in pool.devices
        ],
    )


def _holders(view: View, use: DeviceUse | None) -> Iterator[Holder]:
    if use is None:
        return
    for uid in sorted(use.owners):
        yield _holder(view, uid)
    for (uid, share), consumed in sorted(use.shares.items(), key=lambda item: item[0]):
        amounts = {capacity: str(amount) for capacity, amount in consumed.items()}
        yield _holder(view, uid).model_copy(update={"share": share, "consumed": amounts})


def _holder(view: View, uid: str) -> Holder:
    claim = view.ledger.by_uid(uid)
    if claim is None:  # one for extended resources that is about to be created
        return Holder(claim=uid, pods=[], in_flight=True)
    pods = [consumer.name for consumer in claim.status.reserved_for]
    return Holder(claim=claim.metadata.key, pods=pods, in_flight=claim.allocation is None)


# --- problems ---------------------------------------------------------------------------------------------------------

_UNREADABLE = {
    "ResourceSlice": "its devices are left out: the driver that publishes it has to correct or delete it",
    "DeviceClass": "claims that name it are refused: correct or delete it",
    "ResourceClaim": "what could be read of it last still counts, and it keeps its devices: correct or delete it",
    "DeviceTaintRule": "its taints do not apply: correct or delete it",
    "Node": "pods with claims are not placed there: correct it",
    "Pod": "what could be read of it last still counts: correct or delete it",
}


def _objects(view: View) -> Iterator[Problem]:
    cluster = view.cluster
    for name, problem in sorted(cluster.unreadable.items()):
        kind = name.partition(" ")[0]
        yield Problem(object=name, problem=f"cannot be read: {problem}", what_to_do=_UNREADABLE.get(kind, "correct it"))
    for name, problem in sorted(cluster.inventory.problems()):
        what, _, advice = problem.rpartition(": ")
        yield Problem(object=f"ResourceSlice {name}", problem=what, what_to_do=advice)


def _conflicts(violations: Sequence[Violation]) -> Iterator[Problem]:
    for violation in violations:
        yield Problem(
            object=f"{violation.kind} {violation.subject}",
            problem=f"{violation.detail} (claims: {', '.join(violation.claims)})",
            what_to_do="delete the pods of all but one of these claims, and find out which other allocator wrote them",
        )


def _permissions(permissions: Sequence[str]) -> Iterator[Problem]:
    for permission in permissions:
        yield Problem(
            object="the service's account",
            problem=f"the API server does not allow it: {permission}",
            what_to_do="grant it, as manifests/rbac does",
        )
