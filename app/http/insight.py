"""What people may ask the running service: why a pod waits, what devices there are and who holds them, what is wrong.

Promises: the answers come from the state that the verbs decide on, and asking changes no decision. Long answers are
made in small steps or in pages, one at a time, so that the verbs go on meanwhile, in clusters of thousands of nodes as
well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Header, HTTPException, Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from app.api.core import Pod
from app.devices.readonly import ReadOnlyCluster
from app.http.readers import REFUSALS
from app.http.reports import (
    Inventory,
    NodeReport,
    PodReport,
    Problem,
    Problems,
    Unanswered,
    node_report,
    pod_report,
)
from app.http.schemas import schema_of
from app.scheduling.census.report import Census, State
from app.scheduling.census.taking import Asked, taking
from app.scheduling.diagnosis.diagnose import diagnosing
from app.scheduling.diagnosis.report import Diagnosis
from app.scheduling.headroom import DECISIONS, Headroom, class_claim, class_words, measuring, problem_of
from app.scheduling.preemption.terms import Terms
from app.scheduling.verbs.explain import explaining
from app.scheduling.view import View

MOST_NODES = 500
MOST_DEVICES = 5_000
"""A page of the inventory ends after the node with which it has so many devices."""
MOST_PROBLEMS = 1_000
MOST_WANTED = 32
"""Devices that one claim gets at most (AllocationResultsMaxSize)."""

T = TypeVar("T")


class Insight(Protocol):
    """The service as seen from here."""

    def unknown(self) -> str:
        """Why nothing can be said about the cluster yet; empty when it can."""

    @property
    def view(self) -> View:
        """What questions may read. Asked for only when something is known."""

    def terms(self, pod: Pod) -> Terms | None:
        """On what terms the pod may preempt others; None: preemption is off."""

    def problems(self) -> Generator[None, None, Sequence[Problem]]:
        """What is wrong, and what to do about each, in small steps. Asked for only when something is known."""


_UNANSWERED: dict[int | str, dict[str, Any]] = {
    400: {"model": Unanswered, "description": "a parameter is missing or malformed"},
    404: {"model": Unanswered, "description": "no such pod, node, driver or class"},
    "4XX": {"model": Unanswered, "description": "any other mistake in the question"},
}


def _answer(kind: type[msgspec.Struct], what: str) -> dict[int | str, dict[str, Any]]:
    """Responses of a page whose answer is this struct."""
    schema = {"application/json": {"schema": schema_of(kind)}}
    return _UNANSWERED | {200: {"description": what, "content": schema}}


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
    router = APIRouter(prefix="/insight", tags=["insight"], responses=REFUSALS)
    turn = asyncio.Lock()

    def known() -> Insight:
        unknown = insight.unknown()
        if unknown:
            raise HTTPException(503, f"dra-extender: {unknown}")
        return insight

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
        view = known().view
        found = _find_pod(view, pod)
        names = _find_nodes(view, node)
        async with turn:
            explanation = await _stepwise(explaining(view, found, names, known().terms))
        if "application/json" in accept.lower():
            return pod_report(explanation)
        return PlainTextResponse(explanation.text() + "\n")

    @router.get("/diagnosis", response_class=Response, responses=_answer(Diagnosis, "the diagnosis"))
    async def diagnosis(
        pod: PodKey,
        node: Annotated[list[str] | None, Query(description="only this node; may be repeated")] = None,
    ) -> Response:
        """Why does this pod not run, and what would help? Every remedy was decided again with the change."""
        view = known().view
        found = _find_pod(view, pod)
        names = _find_nodes(view, node)
        async with turn:
            told = await _stepwise(diagnosing(view, found, names))
        return Response(msgspec.json.encode(told), media_type="application/json")

    @router.get("/devices", response_class=Response, responses=_answer(Census, "devices"))
    async def devices(
        node: Annotated[list[str] | None, Query(description="what this node sees; may be repeated")] = None,
        driver: Annotated[list[str] | None, Query(description="of this driver; may be repeated")] = None,
        device_class: Annotated[
            list[str] | None, Query(alias="class", description="that this DeviceClass selects; may be repeated")
        ] = None,
        state: Annotated[list[State] | None, Query(description="in this state; may be repeated")] = None,
        namespace: Annotated[str, Query(description="that claims of this namespace hold")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_NODES, description="pools in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Response:
        """Devices, in what state they are, and who holds them; how many there are in each state."""
        view = known().view
        asked = Asked(
            nodes=frozenset(node or ()),
            drivers=frozenset(driver or ()),
            classes=frozenset(device_class or ()),
            states=frozenset(state or ()),
            namespaces=frozenset(filter(None, (namespace,))),
        )
        missing = asked.unknown(view.cluster)
        if missing:
            raise HTTPException(404, missing)
        async with turn:
            found = await _stepwise(taking(view, asked, limit=limit, after=after))
        return Response(msgspec.json.encode(found), media_type="application/json")

    @router.get("/headroom", response_class=Response, responses=_answer(Headroom, "how many more pods fit"))
    async def headroom(
        device_class: Annotated[str, Query(alias="class", description="DeviceClass of the pods' devices")],
        count: Annotated[int, Query(ge=1, le=MOST_WANTED, description="devices that each pod wants")] = 1,
        limit: Annotated[int, Query(ge=1, le=DECISIONS, description="decisions that are made at most")] = DECISIONS,
    ) -> Response:
        """How many more pods with devices of this class fit now? Devices alone are looked at."""
        view = known().view
        if device_class not in view.cluster.classes:
            raise HTTPException(404, f"DeviceClass {device_class} is not known")
        claims = (class_claim(device_class, count),)
        problem = problem_of(view, claims)
        if problem:
            raise HTTPException(400, problem)
        async with turn:
            found = await _stepwise(measuring(view, class_words(device_class, count), claims, most=limit))
        return Response(msgspec.json.encode(found), media_type="application/json")

    @router.get("/inventory", responses=_UNANSWERED)
    async def inventory(
        node: Annotated[list[str] | None, Query(description="only this node; may be repeated")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_NODES, description="nodes in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Inventory:
        """Nodes, their pools, their devices, and who holds them."""
        view = known().view
        names = [name for name in _find_nodes(view, node) if name > after]
        async with turn:
            return await _stepwise(_inventory(view.cluster, names, limit))

    @router.get("/problems")
    async def problems() -> Problems:
        """Objects that cannot be used, claims that conflict, missing permissions, and what to do about each."""
        steps = known().problems()
        async with turn:
            found = await _stepwise(steps)
        return Problems(total=len(found), problems=list(found[:MOST_PROBLEMS]))

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


def _inventory(cluster: ReadOnlyCluster, names: Sequence[str], limit: int) -> Generator[None, None, Inventory]:
    """One page, a node at a step. Nodes that go meanwhile are left out."""
    nodes: list[NodeReport] = []
    devices = 0
    for index, name in enumerate(names):
        if len(nodes) >= limit or devices >= MOST_DEVICES:
            return Inventory(nodes=nodes, next=names[index - 1])
        seen = cluster.inventory.view(name)
        if seen is not None:
            devices += len(seen.devices)
            nodes.append(node_report(seen, cluster.ledger))
        yield
    return Inventory(nodes=nodes, next="")
