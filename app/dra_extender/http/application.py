"""The FastAPI applications: the verbs for kube-scheduler; probes, metrics and insight for people and monitoring.

One application serves both, unless insight has an address of its own; then the verbs' address serves only the verbs.

Verbs are answered before the frameworks see the request: kube-scheduler calls three of them for each pod, and routing
and validation would cost more than a usual decision.

`/livez`: the process can still do its work. `/readyz`: it could decide now, because it has listed every kind and
watches it, and calls that arrive here are answered by this replica or by the leader. Promises: probes need no token;
both answer 200 or 503 with the same JSON, which says why; one scrape of `/metrics` is answered at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.http.authorization import DENIALS, AuthorizationMiddleware, TokenAuthorizer
from dra_extender.http.metrics import CONTENT_TYPE, Metrics
from dra_extender.http.page.routes import page_files
from dra_extender.http.protocol import PROBES
from dra_extender.http.responses import ErrorBody, error_response, json_content, json_response
from dra_extender.insight.problems import Check
from dra_extender.insight.requests import InvalidRequestError, UnknownObjectError
from dra_extender.limits import BYTES_OF_QUERY
from dra_extender.version import VERSION


class HealthReport(msgspec.Struct, frozen=True):
    """The response of a probe: `ok` when all `checks` are."""

    ok: bool
    checks: Sequence[Check]


class Health(Protocol):
    """The service as probes see it."""

    def live(self) -> Sequence[Check]: ...

    def ready(self) -> Sequence[Check]: ...


PROBE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: json_content(HealthReport, "all checks pass"),
    503: json_content(HealthReport, "some check fails"),
}


def health_router(health: Health, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["health"])
    scraping = asyncio.Lock()

    def report(checks: Sequence[Check]) -> Response:
        ok = all(check.ok for check in checks)
        return json_response(HealthReport(ok, checks), 200 if ok else 503)

    @router.get("/livez", response_class=Response, responses=PROBE_RESPONSES)
    async def livez() -> Response:
        """Whether the process works. If not, it has to be restarted."""
        return report(health.live())

    @router.get("/readyz", response_class=Response, responses=PROBE_RESPONSES)
    async def readyz() -> Response:
        """Whether calls of the verbs are answered here, by this replica or by the leader that it forwards them to."""
        return report(health.ready())

    @router.get(
        "/metrics",
        response_class=Response,
        responses=DENIALS | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def exposition() -> Response:
        """Metrics for Prometheus."""
        async with scraping:  # other work gets its turn between two scrapes
            content = metrics.exposition()
            await asyncio.sleep(0)
        return Response(content, media_type=CONTENT_TYPE)

    return router


TOO_LONG: Final = f"the query string is longer than {BYTES_OF_QUERY:,} bytes: send several requests"


class Application(FastAPI):
    """Passes requests for the paths in `verbs` to these applications, and everything else to FastAPI."""

    verbs: Mapping[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb = self.verbs.get(scope["path"]) if scope["type"] == "http" else None
        if verb is None and scope["type"] == "http" and len(scope["query_string"]) > BYTES_OF_QUERY:
            await error_response(414, TOO_LONG)(scope, receive, send)
            return
        await (super().__call__ if verb is None else verb)(scope, receive, send)


def create_app(
    pages: Sequence[APIRouter], authorizer: TokenAuthorizer | None = None, verbs: Mapping[str, ASGIApp] | None = None
) -> Application:
    """The application of the verbs' address, with `pages` (probes, metrics, insight, the page) unless they have an
    address of their own; without `verbs`, the application of this address. Without `authorizer` everybody may read
    `pages`.
    """
    # kube-scheduler's client would turn a redirect into a GET: paths match exactly or not at all.
    app = Application(
        title=f"dra-extender: {'extender verbs' if verbs else 'insight'}",
        version=VERSION,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        responses={414: {"model": ErrorBody, "description": TOO_LONG}},
    )
    app.verbs = verbs or {}
    app.exception_handler(RequestValidationError)(_invalid_parameters)
    app.exception_handler(InvalidRequestError)(invalid_request)
    if authorizer is not None:
        app.add_middleware(AuthorizationMiddleware, authorizer=authorizer, open_paths=PROBES | page_files().keys())
    for router in pages:
        app.include_router(router)
    return app


async def invalid_request(request: Request, problem: InvalidRequestError) -> Response:
    """Why a question cannot be answered."""
    return error_response(404 if isinstance(problem, UnknownObjectError) else 400, problem.sentence)


async def _invalid_parameters(request: Request, error: RequestValidationError) -> Response:
    """The invalid parameters, in the form of all other errors."""
    problems = (f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    return error_response(400, "; ".join(problems))
