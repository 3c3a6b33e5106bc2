"""Questions about one pod: why it does not run, and what would help."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import PlainTextResponse

from dra_extender.http.insight.desk import UNANSWERED, Desk, NodeNames, PodKey, answering, encoded, find_nodes, find_pod
from dra_extender.http.reports import PodReport, pod_report
from dra_extender.insight.why.diagnose import diagnosing
from dra_extender.insight.why.report import Diagnosis
from dra_extender.scheduling.verbs.explain import explaining


def router(desk: Desk) -> APIRouter:
    """`/explain` and `/diagnosis`."""
    found = APIRouter()
    _add_explain(found, desk)
    _add_diagnosis(found, desk)
    return found


def _add_explain(router: APIRouter, desk: Desk) -> None:
    @router.get(
        "/explain",
        response_model=PodReport,
        responses=UNANSWERED | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def explain(
        pod: PodKey, node: NodeNames = None, accept: Annotated[str, Header(include_in_schema=False)] = ""
    ) -> Response | PodReport:
        """Why does this pod not fit? The decision that filter would make now, node by node: text for people, or JSON
        when `Accept` names application/json.
        """
        view = desk.view
        found = find_pod(view, pod)
        names = find_nodes(view, node)
        explanation = await desk.answer(explaining(view, found, names, desk.insight.terms))
        if "application/json" in accept.lower():
            return pod_report(explanation)
        return PlainTextResponse(explanation.text() + "\n")


def _add_diagnosis(router: APIRouter, desk: Desk) -> None:
    @router.get("/diagnosis", response_class=Response, responses=answering(Diagnosis, "the diagnosis"))
    async def diagnosis(pod: PodKey, node: NodeNames = None) -> Response:
        """Why does this pod not run, and what would help? Every remedy was decided again with the change."""
        view = desk.view
        found = find_pod(view, pod)
        return encoded(await desk.answer(diagnosing(view, found, find_nodes(view, node))))
