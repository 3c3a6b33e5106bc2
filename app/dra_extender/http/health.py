"""Probes, version and metrics: `/livez`, `/readyz`, `/version`, `/metrics`.

Live: the process can still do its work. Ready: it could decide now, because it has listed every kind and watches it,
and calls that arrive here are answered by this replica or by the leader. Promises: probes need no token; both answer
200 or 503 with the same JSON, which says why; one scrape is answered at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import APIRouter, Response

from dra_extender.http.authorization import DENIALS
from dra_extender.http.metrics import CONTENT_TYPE, Metrics
from dra_extender.http.responses import encoded, json_content
from dra_extender.insight.problems import Check
from dra_extender.version import VERSION


class HealthReport(msgspec.Struct, frozen=True):
    """The response of a probe: `ok` when all `checks` are."""

    ok: bool
    checks: Sequence[Check]


class Version(msgspec.Struct, frozen=True):
    version: Annotated[str, msgspec.Meta(description="of this program")]
    kubernetes: Annotated[str, msgspec.Meta(description="of the API server; empty until it answers")]
    resource_api: Annotated[str, msgspec.Meta(description="version of resource.k8s.io in use; empty until known")]
    server: Annotated[str, msgspec.Meta(description="URL of the API server")]


class Health(Protocol):
    """The service as probes see it."""

    def live(self) -> Sequence[Check]: ...

    def ready(self) -> Sequence[Check]: ...

    @property
    def kubernetes(self) -> tuple[str, str, str]:
        """Version of the API server, version of its resource API, and its URL; empty until known."""


PROBE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: json_content(HealthReport, "all checks pass"),
    503: json_content(HealthReport, "some check fails"),
}


def health_router(health: Health, metrics: Metrics) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["health"])
    scraping = asyncio.Lock()

    def report(checks: Sequence[Check]) -> Response:
        ok = all(check.ok for check in checks)
        return encoded(HealthReport(ok, checks), 200 if ok else 503)

    @router.get("/livez", response_class=Response, responses=PROBE_RESPONSES)
    async def livez() -> Response:
        """Whether the process works. If not, it has to be restarted."""
        return report(health.live())

    @router.get("/readyz", response_class=Response, responses=PROBE_RESPONSES)
    async def readyz() -> Response:
        """Whether calls of the verbs are answered here, by this replica or by the leader that it forwards them to."""
        return report(health.ready())

    @router.get("/version", response_class=Response, responses=DENIALS | {200: json_content(Version, "the versions")})
    async def version() -> Response:
        """The versions of this program and of the API server."""
        return encoded(Version(VERSION, *health.kubernetes))

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
