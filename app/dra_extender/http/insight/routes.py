"""The routes below /insight: questions about pods, devices, problems and hypothetical changes.

Promises: a question is answered from one state, or gets an error that names its mistake; it changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.responses import PlainTextResponse

from dra_extender.http.authorization import DENIALS, reader_of
from dra_extender.http.insight.queue import Insight, NodeNames, PodKey, QueryQueue, answering
from dra_extender.http.insight.whatifrequest import Body, body_of
from dra_extender.http.responses import BodyTooLargeError, DisconnectedError, encoded, read_body, schema_of
from dra_extender.insight.devicereport.listing import DeviceQuery, detailing, reporting
from dra_extender.insight.devicereport.report import DeviceDetails, DeviceReport, DeviceState
from dra_extender.insight.headroom import DECISIONS, Headroom, class_request, measuring
from dra_extender.insight.manifests import Draft
from dra_extender.insight.problems import ProblemList
from dra_extender.insight.requests import nodes_named, pod_named
from dra_extender.insight.whatif.whatif import WhatIf, simulating
from dra_extender.insight.why.diagnosis import diagnosing, explaining
from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import fully
from dra_extender.limits import BYTES_OF_WHATIF
from dra_extender.scheduling.turns import Turns

MOST_POOLS: Final = 500
MOST_WANTED: Final = 32
"""Devices of one claim (AllocationResultsMaxSize of resource.k8s.io)."""
MOST_PROBLEMS: Final = 1_000
_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(Body)}}}
}


def insight_router(insight: Insight) -> APIRouter:
    """All of them."""
    queue = QueryQueue(insight)
    router = APIRouter(prefix="/insight", tags=["insight"], responses=DENIALS)
    for add in (_add_explain, _add_diagnosis, _add_devices, _add_device, _add_headroom, _add_problems, _add_whatif):
        add(router, queue)
    return router


def _add_explain(router: APIRouter, queue: QueryQueue) -> None:
    responses = answering(Diagnosis, "the diagnosis, as text or as JSON")
    responses[200]["content"]["text/plain"] = {"schema": {"type": "string"}}

    @router.get("/explain", response_class=Response, responses=responses)
    async def explain(
        request: Request,
        pod: PodKey,
        node: NodeNames = None,
        accept: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """As `/insight/diagnosis`, with the pods that this pod would preempt: as text, or as JSON when `Accept` names
        application/json.
        """
        view = queue.view
        names = nodes_named(view.cluster.nodes, node) if node else None
        steps = explaining(view, pod_named(view.pods, pod), names, queue.insight.terms)
        diagnosis = await _read(request, queue, steps)
        if "application/json" in accept.lower():
            return encoded(diagnosis)
        return PlainTextResponse(fully(diagnosis) + "\n")


def _add_diagnosis(router: APIRouter, queue: QueryQueue) -> None:
    @router.get("/diagnosis", response_class=Response, responses=answering(Diagnosis, "the diagnosis"))
    async def diagnosis(request: Request, pod: PodKey, node: NodeNames = None) -> Response:
        """Why this pod does not run, and which changes would help. Each remedy was verified by deciding again with the
        change.
        """
        view = queue.view
        names = nodes_named(view.cluster.nodes, node) if node else None
        return encoded(await _read(request, queue, diagnosing(view, pod_named(view.pods, pod), names)))


async def _read(request: Request, queue: QueryQueue, steps: Turns[Diagnosis]) -> Diagnosis:
    """The diagnosis for the reader of the request. Readers of one namespace wait in the queue of long questions."""
    namespace = reader_of(request).namespace
    if namespace is None:
        return await queue.answer(steps)
    reader = queue.view.config.reader(namespace)
    return redacted(await queue.answer_at_length(steps), reader)


def _add_devices(router: APIRouter, queue: QueryQueue) -> None:
    @router.get("/devices", response_class=Response, responses=answering(DeviceReport, "devices"))
    async def devices(
        node: Annotated[list[str] | None, Query(description="only devices of this node; may be repeated")] = None,
        driver: Annotated[list[str] | None, Query(description="only of this driver; may be repeated")] = None,
        device_class: Annotated[
            list[str] | None,
            Query(alias="class", description="only devices that this DeviceClass selects; may be repeated"),
        ] = None,
        state: Annotated[list[DeviceState] | None, Query(description="only in this state; may be repeated")] = None,
        namespace: Annotated[str, Query(description="only devices allocated to claims of this namespace")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_POOLS, description="pools in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Response:
        """Devices with their states and the claims that hold them, and totals by state."""
        view = queue.view
        wanted = DeviceQuery(
            nodes=frozenset(node or ()),
            drivers=frozenset(driver or ()),
            classes=frozenset(device_class or ()),
            states=frozenset(state or ()),
            namespaces=frozenset(filter(None, (namespace,))),
        )
        wanted.check(view.cluster)
        return encoded(await queue.answer(reporting(view, wanted, limit=limit, after=after)))


def _add_device(router: APIRouter, queue: QueryQueue) -> None:
    @router.get("/device", response_class=Response, responses=answering(DeviceDetails, "the device"))
    async def device(
        driver: Annotated[str, Query(description="its driver")],
        pool: Annotated[str, Query(description="its pool")],
        name: Annotated[str, Query(alias="device", description="its name")],
    ) -> Response:
        """One device: what its slice publishes, its state, and the claims that hold it."""
        found = await queue.answer(detailing(queue.view, (driver, pool, name)))
        if found is None:
            raise HTTPException(404, f"device {driver}/{pool}/{name} not found")
        return encoded(found)


def _add_headroom(router: APIRouter, queue: QueryQueue) -> None:
    @router.get("/headroom", response_class=Response, responses=answering(Headroom, "how many more pods fit"))
    async def headroom(
        device_class: Annotated[str, Query(alias="class", description="DeviceClass that each pod requests")],
        count: Annotated[int, Query(ge=1, le=MOST_WANTED, description="devices that each pod requests")] = 1,
        limit: Annotated[int, Query(ge=1, le=DECISIONS, description="decisions at most")] = DECISIONS,
    ) -> Response:
        """How many more pods with devices of this class fit now. Only devices are compared, not CPU or memory."""
        view = queue.view
        what, claims = class_request(view, device_class, count)
        return encoded(await queue.answer(measuring(view, what, claims, most=limit)))


def _add_problems(router: APIRouter, queue: QueryQueue) -> None:
    @router.get("/problems", response_class=Response, responses=answering(ProblemList, "the problems"))
    async def problems() -> Response:
        """Unusable objects, conflicting claims and missing permissions, with what to do about each."""
        found = await queue.answer(queue.insight.problems())
        return encoded(ProblemList(len(found), found[:MOST_PROBLEMS]))


def _add_whatif(router: APIRouter, queue: QueryQueue) -> None:
    @router.post(
        "/whatif",
        response_class=Response,
        responses=answering(WhatIf, "which pods would fit, and which would not"),
        openapi_extra=_BODY,
    )
    async def whatif(request: Request) -> Response:
        """Which pods would fit, and which would no longer fit, if nodes were added or drained, pods deleted, or taints
        tolerated. Nothing is changed: the permission to get this path suffices.
        """
        view = queue.view
        try:
            data = await read_body(request.scope, request.receive, BYTES_OF_WHATIF)
        except BodyTooLargeError:
            detail = f"the request is larger than {BYTES_OF_WHATIF} bytes: send fewer names at once"
            raise HTTPException(413, detail, {"Connection": "close"}) from None
        except DisconnectedError:
            return Response(status_code=400)
        body = body_of(data)
        pods = [pod_named(view.pods, key, f"pods[{number}]") for number, key in enumerate(dict.fromkeys(body.pods))]
        drafts = [Draft(pod, ()) for pod in pods] or None
        return encoded(await queue.answer_at_length(simulating(view, body.changes, drafts)))
