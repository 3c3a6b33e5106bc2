"""The FastAPI applications: the verbs for kube-scheduler; probes, metrics and insight for people and monitoring.

One application serves both, unless insight has an address of its own; then the verbs' address serves only the verbs.

Verbs are answered before the frameworks see the request: kube-scheduler calls three of them for each pod, and routing
and validation would cost more than a usual decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.http.authorization import AuthorizationMiddleware, TokenAuthorizer
from dra_extender.http.health import Health, health_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.page.routes import page_files
from dra_extender.http.protocol import PROBES
from dra_extender.http.responses import ErrorBody, error_response, send_response
from dra_extender.http.verbs import Decider, VerbTerms, verb_routes
from dra_extender.limits import BYTES_OF_QUERY
from dra_extender.version import VERSION

TOO_LONG: Final = f"the query string is longer than {BYTES_OF_QUERY:,} bytes: send several requests"


class Pages(msgspec.Struct, frozen=True):
    """What is served besides the verbs: probes, metrics, and `routers` (insight, the page)."""

    health: Health
    metrics: Metrics
    routers: Sequence[APIRouter] = ()


class Application(FastAPI):
    """Passes requests for the paths in `verbs` to these applications, and everything else to FastAPI."""

    verbs: Mapping[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb = self.verbs.get(scope["path"]) if scope["type"] == "http" else None
        if verb is None and scope["type"] == "http" and len(scope["query_string"]) > BYTES_OF_QUERY:
            await send_response(send, error_response(414, TOO_LONG))
            return
        await (super().__call__ if verb is None else verb)(scope, receive, send)


def create_app(
    decider: Callable[[], Decider],
    terms: VerbTerms,
    pages: Pages | None = None,
    authorizer: TokenAuthorizer | None = None,
) -> Application:
    """The application of the verbs' address, with `pages` unless they have an address of their own."""
    app = _application("extender verbs", pages, authorizer)
    app.verbs = verb_routes(decider, terms)
    return app


def create_insight_app(pages: Pages, authorizer: TokenAuthorizer | None = None) -> Application:
    """The application of a separate address for `pages`. Without `authorizer` everybody may read them."""
    return _application("insight", pages, authorizer)


def _application(title: str, pages: Pages | None, authorizer: TokenAuthorizer | None) -> Application:
    # kube-scheduler's client would turn a redirect into a GET: paths match exactly or not at all.
    app = Application(
        title=f"dra-extender: {title}",
        version=VERSION,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        responses={414: {"model": ErrorBody, "description": TOO_LONG}},
    )
    app.exception_handler(RequestValidationError)(_invalid_parameters)
    if authorizer is not None:
        app.add_middleware(AuthorizationMiddleware, authorizer=authorizer, open_paths=PROBES | page_files().keys())
    if pages is not None:
        for router in (health_router(pages.health, pages.metrics), *pages.routers):
            app.include_router(router)
    return app


async def _invalid_parameters(request: Request, error: RequestValidationError) -> JSONResponse:
    """The invalid parameters, in the form of all other errors."""
    problems = (f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    return JSONResponse({"detail": "; ".join(problems)}, 400)
