"""The routes below /insight, and /v1/simulate: questions about pods, devices, problems and hypothetical changes.

Promises: a question is answered from the state that the verbs decide on, or gets an error with field, problem and
remedy. It changes nothing. Long answers are computed in small steps, one at a time, so the verbs keep working, in
clusters of thousands of nodes too. The longest questions have a queue of their own with at most `QUEUED_QUESTIONS`
entries, in which namespaces take turns; when it is full, the namespace with the most entries gets a 429.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from starlette.requests import ClientDisconnect

from dra_extender.api.core import Pod
from dra_extender.fairqueue import FairQueue
from dra_extender.http.authorization import DENIALS, reader_of
from dra_extender.http.responses import (
    CLOSE,
    BodyTooLargeError,
    ErrorBody,
    json_content,
    json_response,
    read_body,
    schema_of,
)
from dra_extender.insight.devicereport.listing import DeviceQuery, detailing, reporting
from dra_extender.insight.devicereport.report import DeviceDetails, DeviceReport, DeviceState
from dra_extender.insight.headroom import DECISIONS, GangShape, Headroom, class_request, measuring
from dra_extender.insight.manifests import Draft
from dra_extender.insight.problems import ClusterProblem, ProblemList
from dra_extender.insight.requests import nodes_named, pod_named
from dra_extender.insight.shadow import ShadowReport
from dra_extender.insight.whatif.simulation import Simulation, SimulationRequest, request_of, simulation
from dra_extender.insight.whatif.whatif import Changes, WhatIf, changes_of, simulating
from dra_extender.insight.why.diagnosis import explaining
from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import fully
from dra_extender.limits import BYTES_OF_WHATIF, PODS_OF_GANG, QUEUED_QUESTIONS
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View

T = TypeVar("T")


class Insight(Protocol):
    """The service as questions see it. Everything but `unknown` may be used only while `unknown` returns ""."""

    def unknown(self) -> str:
        """Why the present state of the cluster is not known; empty when it is."""

    @property
    def view(self) -> View:
        """The state that questions read."""

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        """The terms on which the pod may preempt others; None when preemption is off."""

    def problems(self) -> Turns[Sequence[ClusterProblem]]:
        """All problems, in small steps."""

    def shadow(self) -> Turns[ShadowReport] | str:
        """The report of shadow mode, or why this replica has none."""


ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "a parameter is missing or malformed"},
    404: {"model": ErrorBody, "description": "the pod, node, driver, device or class does not exist"},
    "4XX": {"model": ErrorBody, "description": "any other error of the request"},
}


def answering(kind: type[msgspec.Struct], what: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses of a route that answers with this struct."""
    return ERRORS | {200: json_content(kind, what)}


class QueryQueue:
    """One per service. Methods raise HTTPException for every response other than 200."""

    def __init__(self, insight: Insight) -> None:
        self._insight = insight
        self._turn = asyncio.Lock()
        self._answered: asyncio.Future[None] | None = None
        """The turn of the long question that is being answered; the others wait."""
        self._waiting = FairQueue[asyncio.Future[None]]()

    @property
    def insight(self) -> Insight:
        """The service, once it knows the cluster."""
        unknown = self._insight.unknown()
        if unknown:
            raise HTTPException(503, f"dra-extender: {unknown}")
        return self._insight

    async def answer(self, steps: Turns[T]) -> T:
        """Wait for the turn of this question, and run its steps; other work runs between two steps."""
        async with self._turn:
            return await run(steps)

    async def answer_at_length(self, steps: Turns[T], namespace: str = "") -> T:
        """As `answer`, for thousands of steps: other questions do not wait for them. `namespace`: of the reader."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(namespace, turn, turn)
        if len(self._waiting) >= QUEUED_QUESTIONS and self._answered:
            refused = self._waiting.evict_for(namespace, turn) or turn
            if not refused.done():
                detail = "too many questions of this kind are waiting already: try again in a few seconds"
                refused.set_exception(HTTPException(429, detail, {"Retry-After": "2"}))
        try:
            self._give_turn()
            await turn
            await asyncio.sleep(0)  # questions that came at once begin in different cycles of the event loop
            return await run(steps, partial(self._waiting.charge, namespace, 1))
        finally:
            list(self._waiting.drop(turn))
            if self._answered is turn:
                self._answered = None
                self._give_turn()

    def _give_turn(self) -> None:
        while not self._answered and self._waiting:
            turn = self._waiting.take()
            if not turn.done():
                self._answered = turn
                turn.set_result(None)


def _pod_key(given: str) -> str:
    """Raises PydanticCustomError, which becomes a 400."""
    namespace, slash, name = given.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise PydanticCustomError("pod_key", "must be NAMESPACE/NAME")
    return given


PodKey = Annotated[
    str, AfterValidator(_pod_key), Query(description="NAMESPACE/NAME", json_schema_extra={"pattern": "^[^/]+/[^/]+$"})
]
NodeNames = Annotated[list[str] | None, Query(description="only this node; may be repeated")]


MOST_POOLS: Final = 500
MOST_WANTED: Final = 32
"""Devices of one claim (AllocationResultsMaxSize of resource.k8s.io)."""
MOST_PROBLEMS: Final = 1_000


def insight_router(insight: Insight) -> APIRouter:
    queue = QueryQueue(insight)
    router = APIRouter(tags=["insight"], responses=DENIALS, default_response_class=Response)
    for add in (_add_pods, _add_devices, _add_changes):
        add(router, queue)
    return router


def _add_pods(router: APIRouter, queue: QueryQueue) -> None:
    of_diagnosis = answering(Diagnosis, "the diagnosis, as JSON or as text")
    of_diagnosis[200]["content"]["text/plain"] = {"schema": {"type": "string"}}

    @router.get("/insight/diagnosis", responses=of_diagnosis)
    async def diagnosis(
        request: Request,
        pod: PodKey,
        node: NodeNames = None,
        accept: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """Why this pod does not run, which changes would help, and which pods it would preempt. Each remedy was
        verified by deciding again with the change. The answer is JSON, or text when `Accept` names text/plain.
        """
        view, namespace = queue.insight.view, reader_of(request).namespace
        names = nodes_named(view.cluster.nodes, node) if node else None
        steps = explaining(view, pod_named(view.pods, pod), names, queue.insight.terms)
        if namespace is None:
            found = await queue.answer(steps)
        else:  # readers of one namespace wait in the queue of long questions
            found = redacted(await queue.answer_at_length(steps, namespace), view.config.reader(namespace))
        return PlainTextResponse(f"{fully(found)}\n") if "text/plain" in accept.lower() else json_response(found)

    @router.get("/insight/problems", responses=answering(ProblemList, "the problems"))
    async def problems() -> Response:
        """Unusable objects, conflicting claims and missing permissions, with what to do about each."""
        found = await queue.answer(queue.insight.problems())
        return json_response(ProblemList(len(found), found[:MOST_PROBLEMS]))

    @router.get("/insight/shadow", responses=answering(ShadowReport, "the report"))
    async def shadow() -> Response:
        """What other schedulers did since the record began, and what this service would have done (mode shadow)."""
        found = queue.insight.shadow()
        if isinstance(found, str):
            raise HTTPException(503, f"dra-extender: {found}")
        return json_response(await queue.answer(found))


def _add_devices(router: APIRouter, queue: QueryQueue) -> None:
    @router.get("/insight/devices", responses=answering(DeviceReport, "devices"))
    async def devices(
        node: Annotated[list[str] | None, Query(description="only devices of this node; may be repeated")] = None,
        driver: Annotated[list[str] | None, Query(description="only of this driver; may be repeated")] = None,
        device_class: Annotated[
            list[str] | None,
            Query(alias="class", description="only devices that this DeviceClass selects; may be repeated"),
        ] = None,
        state: Annotated[list[DeviceState] | None, Query(description="only in this state; may be repeated")] = None,
        namespace: Annotated[str, Query(description="only devices with a listed holder of this namespace")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_POOLS, description="pools in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Response:
        """Devices with their states and the claims that hold them, and totals by state."""
        view = queue.insight.view
        wanted = DeviceQuery(
            nodes=frozenset(node or ()),
            drivers=frozenset(driver or ()),
            classes=frozenset(device_class or ()),
            states=frozenset(state or ()),
            namespaces=frozenset(filter(None, (namespace,))),
        )
        wanted.check(view.cluster)
        return json_response(await queue.answer(reporting(view, wanted, limit=limit, after=after)))

    @router.get("/insight/device", responses=answering(DeviceDetails, "the device"))
    async def device(
        driver: Annotated[str, Query(description="its driver")],
        pool: Annotated[str, Query(description="its pool")],
        name: Annotated[str, Query(alias="device", description="its name")],
    ) -> Response:
        """One device: what its slice publishes, its state, and the claims that hold it."""
        found = await queue.answer(detailing(queue.insight.view, (driver, pool, name)))
        if found is None:
            raise HTTPException(404, f"device {driver}/{pool}/{name} not found")
        return json_response(found)

    @router.get("/insight/headroom", responses=answering(Headroom, "how many more pods fit"))
    async def headroom(
        device_class: Annotated[str, Query(alias="class", description="DeviceClass that each pod requests")],
        count: Annotated[int, Query(ge=1, le=MOST_WANTED, description="devices that each pod requests")] = 1,
        gang: Annotated[int, Query(ge=0, le=PODS_OF_GANG, description="also count gangs of this number of pods")] = 0,
        topology: Annotated[str, Query(description="label of which the nodes of a gang need one value")] = "",
        limit: Annotated[int, Query(ge=1, le=DECISIONS, description="decisions at most")] = DECISIONS,
    ) -> Response:
        """How many more pods with devices of this class fit now. Only devices are compared, not CPU or memory."""
        view = queue.insight.view
        what, claims = class_request(view, device_class, count)
        shape = GangShape(gang, topology) if gang else None
        return json_response(await queue.answer(measuring(view, what, claims, shape, most=limit)))


def _add_changes(router: APIRouter, queue: QueryQueue) -> None:
    def what_if(view: View, data: bytes) -> Turns[WhatIf]:
        found = changes_of(data)
        yield
        pods = [pod_named(view.pods, key, f"pods[{number}]") for number, key in enumerate(dict.fromkeys(found.pods))]
        return (yield from simulating(view, found, [Draft(pod, ()) for pod in pods] or None))

    @router.post(
        "/insight/whatif",
        responses=answering(WhatIf, "which pods would fit, and which would not"),
        openapi_extra=_body_schema(Changes),
    )
    async def whatif(request: Request) -> Response:
        """Which pods would fit, and which would no longer fit, if nodes were added or drained, or pods deleted. Nothing
        is changed: the permission to get this path suffices.
        """
        data = await _body_of(request, "send fewer names at once")
        return json_response(await queue.answer_at_length(what_if(queue.insight.view, data)))

    def simulated(view: View, data: bytes) -> Turns[Simulation]:
        found = request_of(data)
        yield
        return (yield from simulation(view, found))

    @router.post(
        "/v1/simulate",
        responses=answering(Simulation, "the nodes that fit, and how many pods fit"),
        openapi_extra=_body_schema(SimulationRequest),
    )
    async def simulate(request: Request) -> Response:
        """Which nodes fit a pod, existing and new ones, and how many new nodes are needed for more such pods, or gangs.
        Nothing is changed: the permission to get this path suffices.
        """
        data = await _body_of(request, "leave out metadata.managedFields, or name existing pods")
        return json_response(await queue.answer_at_length(simulated(queue.insight.view, data)))


async def _body_of(request: Request, remedy: str) -> bytes:
    """Raises HTTPException for a body that is too large, or not complete."""
    try:
        return await read_body(request, BYTES_OF_WHATIF)
    except BodyTooLargeError:
        detail = f"the request is larger than {BYTES_OF_WHATIF} bytes: {remedy}"
        raise HTTPException(413, detail, CLOSE) from None
    except ClientDisconnect:
        raise HTTPException(400) from None


def _body_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(kind)}}}}
