"""Probes and version: `/livez`, `/readyz`, `/version`, `/metrics`. Probes are open to everybody.

Live means that the process can still do its work; ready means that it could decide now: everything was listed once,
every kind is being watched, and a call that comes here is answered, by this replica or by the leader that it asks. Both
say why not, as JSON that people and probes can read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from fastapi import APIRouter, Response
from pydantic import BaseModel

from dra_extender.http.metrics import CONTENT_TYPE, Metrics
from dra_extender.http.readers import REFUSALS
from dra_extender.version import VERSION


class Check(BaseModel):
    """One condition. `problem` is empty when it holds."""

    name: str
    ok: bool
    problem: str = ""


class Report(BaseModel):
    """All conditions of a probe."""

    ok: bool
    checks: list[Check]


class Version(BaseModel):
    version: str
    kubernetes: str
    resource_api: str
    server: str


class Health(Protocol):
    """What the service knows about itself."""

    def live(self) -> Sequence[Check]: ...

    def ready(self) -> Sequence[Check]: ...

    @property
    def kubernetes(self) -> tuple[str, str, str]:
        """Version of the API server, version of the resource API spoken, and the URL; empty until known."""


def health_router(health: Health, metrics: Metrics) -> APIRouter:
    """The routes. Probes answer 200 or 503 with the same body."""
    router = APIRouter(tags=["health"])
    scraping = asyncio.Lock()

    def report(checks: Sequence[Check], response: Response) -> Report:
        ok = all(check.ok for check in checks)
        response.status_code = 200 if ok else 503
        return Report(ok=ok, checks=list(checks))

    @router.get("/livez", responses={503: {"model": Report, "description": "some check fails"}})
    async def livez(response: Response) -> Report:
        """Does this process still work? If it does not, it has to be restarted."""
        return report(health.live(), response)

    @router.get("/readyz", responses={503: {"model": Report, "description": "some check fails"}})
    async def readyz(response: Response) -> Report:
        """Are calls of the verbs answered here now, by this replica or by the leader that it asks?"""
        return report(health.ready(), response)

    @router.get("/version", responses=REFUSALS)
    async def version() -> Version:
        """This program, and what it talks to."""
        kubernetes, resource_api, server = health.kubernetes
        return Version(version=VERSION, kubernetes=kubernetes, resource_api=resource_api, server=server)

    @router.get(
        "/metrics",
        response_class=Response,
        responses=REFUSALS | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def exposition() -> Response:
        """Counters and gauges for Prometheus."""
        async with scraping:  # however many ask at once, everything else goes on between two of them
            content = metrics.exposition()
            await asyncio.sleep(0)
        return Response(content, media_type=CONTENT_TYPE)

    return router
