"""A served application over scripted decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import APIRouter
from starlette.types import ASGIApp

from dra_extender.api.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from dra_extender.http.application import Application, create_app, health_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.server import HttpServer
from dra_extender.http.verbs import VerbContext, verb_routes
from dra_extender.insight.problems import Check
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.outcomes import Reading


class ScriptedVerbs:
    """Accepts all nodes but `bad`, scores by position, binds all pods but `unlucky`; records what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.bind_with: Callable[[ExtenderBindingArgs], Awaitable[ExtenderBindingResult]] = self.bind_at_once

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        self.asked.append(args)
        if args.Pod.metadata.name == "bomb":
            raise RuntimeError("boom")
        names = args.NodeNames or ()
        return ExtenderFilterResult(
            NodeNames=[name for name in names if name != "bad"],
            FailedAndUnresolvableNodes={name: "cannot allocate all claims" for name in names if name == "bad"},
        )

    async def prioritize(self, args: ExtenderArgs) -> Sequence[HostPriority]:
        self.asked.append(args)
        if args.Pod.metadata.name == "bomb":
            raise RuntimeError("boom")
        return [HostPriority(name, index % 11) for index, name in enumerate(args.NodeNames or ())]

    async def advise(self, args: ExtenderArgs) -> Sequence[HostPriority]:
        return await self.prioritize(args)

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        self.asked.append(args)
        return ExtenderPreemptionResult(args.NodeNameToMetaVictims or {})

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        self.asked.append(args)
        return await self.bind_with(args)

    async def bind_at_once(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        return ExtenderBindingResult("no such pod" if args.PodName == "unlucky" else "")


class Served:
    """The server, its decisions, and the state that tests change."""

    def __init__(self) -> None:
        self.verbs = ScriptedVerbs()
        self.metrics = Metrics()
        self.unavailable = ""
        self.checks = [Check(name="sync", ok=True)]
        self.metrics.read_from(lambda: [Reading("ready", 1.0), Reading("objects", 3.0, ("Node",))])
        self.url = ""

    def live(self) -> Sequence[Check]:
        return self.checks

    def ready(self) -> Sequence[Check]:
        return self.checks

    @property
    def pages(self) -> Sequence[APIRouter]:
        """Its probes and metrics."""
        return [health_router(self, self.metrics)]

    @property
    def extender(self) -> Extender:
        return cast(Extender, self.verbs)

    def application(self, **options: Any) -> Application:
        """Its verbs with these options, with its probes and metrics."""
        shared = VerbContext(lambda: self.unavailable, self.metrics, **options)
        return create_app(self.pages, verbs=verb_routes(lambda: self.extender, shared))


@asynccontextmanager
async def serving(app: ASGIApp, **options: Any) -> AsyncIterator[HttpServer]:
    """The application on a free port; options as of `HttpServer`."""
    made = HttpServer(app, "127.0.0.1", 0, **options)
    await made.start()
    try:
        yield made
    finally:
        await made.stop(1)
