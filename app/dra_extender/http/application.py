"""The FastAPI applications: verbs for kube-scheduler, and probes, metrics and insight for people and monitoring.

Both are one application unless insight has an address of its own; then the verbs' address serves nothing but verbs.

The verbs are answered before the frameworks see the request: every pod asks three of them, and routing with all that
surrounds it would cost more than an everyday decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.http.answers import problem, send_answer
from dra_extender.http.clients import Clients
from dra_extender.http.forwarding import Forwarding
from dra_extender.http.health import Health, health_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.page.files import page_files
from dra_extender.http.protocol import PROBES
from dra_extender.http.readers import Guard, Readers
from dra_extender.http.reports import Unanswered
from dra_extender.http.verbs import Terms, Verbs, make_verbs
from dra_extender.version import VERSION

LONGEST_QUERY: Final = 8 * 2**10
"""Bytes of the parameters of a question: each is checked, and told when it is wrong."""
TOO_LONG: Final = f"the parameters are longer than {LONGEST_QUERY:,} bytes: ask in parts"


class Application(FastAPI):
    """Answers `verbs`, by path, by themselves, and everything else as FastAPI does."""

    verbs: Mapping[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb = self.verbs.get(scope["path"]) if scope["type"] == "http" else None
        if verb is None and scope["type"] == "http" and len(scope["query_string"]) > LONGEST_QUERY:
            await send_answer(send, problem(414, TOO_LONG))
            return
        await (super().__call__ if verb is None else verb)(scope, receive, send)


def create_app(
    verbs: Verbs,
    *,
    unavailable: Callable[[], str],
    metrics: Metrics,
    max_body: int = 8 * 2**20,
    clients: Clients | None = None,
    health: Health | None = None,
    insight: Iterable[APIRouter] = (),
    readers: Readers | None = None,
    forwarding: Forwarding | None = None,
) -> Application:
    """The application of the verbs' address; with `health` and `insight` it serves those too. `clients` may call the
    verbs, `readers` read everything else but the probes and the files of the page: without them, all. `forwarding`
    asks the leader where this replica does not lead.
    """
    app = _application("extender verbs")
    made = make_verbs(verbs, Terms(unavailable, metrics, max_body, clients or Clients(), forwarding))
    app.verbs = {
        "/scheduler/filter": made.filter,
        "/scheduler/prioritize": made.prioritize,
        "/scheduler/preempt": made.preempt,
        "/scheduler/bind": made.bind,
        "/advisor/prioritize": made.advise,
    }
    _guard(app, readers, PROBES | page_files().keys())
    if health is not None:
        app.include_router(health_router(health, metrics))
    for router in insight:
        app.include_router(router)
    return app


def create_insight_app(
    health: Health, metrics: Metrics, insight: Iterable[APIRouter] = (), readers: Readers | None = None
) -> FastAPI:
    """The application of a separate address for probes, metrics and insight. `readers` may read what is neither
    a probe nor a file of the page: without it, all.
    """
    app = _application("insight")
    _guard(app, readers, PROBES | page_files().keys())
    app.include_router(health_router(health, metrics))
    for router in insight:
        app.include_router(router)
    return app


def _application(title: str) -> Application:
    # kube-scheduler's client would turn a redirect into a GET: paths match exactly or not at all.
    app = Application(
        title=f"dra-extender: {title}",
        version=VERSION,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        responses={414: {"model": Unanswered, "description": TOO_LONG}},
    )
    app.exception_handler(RequestValidationError)(_malformed)
    return app


def _guard(app: FastAPI, readers: Readers | None, open_paths: frozenset[str]) -> None:
    if readers is not None:
        app.add_middleware(Guard, readers=readers, open_paths=open_paths)


async def _malformed(request: Request, error: RequestValidationError) -> JSONResponse:
    """The parameters that are wrong, in the form of every other refusal."""
    problems = (f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    return JSONResponse({"detail": "; ".join(problems)}, 400)
