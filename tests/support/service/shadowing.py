"""A cluster that another scheduler uses, and the record of shadow mode: objects as JSON, time as tests set it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.insight.shadow import ShadowExample, ShadowReport
from dra_extender.placement.policies import PlacementStrategy, PolicyName
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service.shadow import RECENT, ShadowRecord
from tests.support.diagnosis.gpupods import running as held
from tests.support.diagnosis.gpupods import waiting as pending
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GPU
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]
GPUS = device_class("gpu", f'device.driver == "{GPU}"')


def running(name: str, host: str, *devices: str) -> list[Json]:
    """As other schedulers bind it: the allocation names the node."""
    pod, claim = held(name, host, *devices)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    claim["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [here]}
    return [pod, claim]


def waiting(name: str, count: int = 1) -> list[Json]:
    """As `running` has them."""
    pod, claim = pending(name, count)
    claim["metadata"]["uid"] = f"uid-default-{name}"
    return [pod, claim]


def machine(name: str, devices: int, **spec: Any) -> list[Json]:
    return [node(name, **spec), gpus(name, "A", devices, "1Gi", "1.0.0")]


TWO = [GPUS, *machine("a", 2), *machine("b", 2)]
HALF = [*TWO, *running("first", "b", "gpu-0")]
KINDS: dict[str, Any] = {
    "Node": Node,
    "Pod": Pod,
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
}
LONGEST = 100_000
QUIET = 20
"""Turns of the event loop in which the record begins with an event."""


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now)

    def monotonic(self) -> float:
        return self.now


class Shadowed:
    """`record` observes the events that `apply` applies."""

    def __init__(self, documents: list[Json], policy: PolicyName = "first-fit", gates: str = "") -> None:
        self.watch = Watch()
        self.view = replace(Scene(documents, gates=gates).view(), clock=self.watch)
        self.record = ShadowRecord(self.view, PlacementStrategy(policy=policy))

    def apply(self, *documents: Json) -> None:
        for document in documents:
            self._event(Applied(convert(KINDS[document["kind"]], document)))

    def remove(self, *documents: Json) -> None:
        for document in documents:
            self._event(Removed.of(convert(KINDS[document["kind"]], document)))

    def _event(self, event: ClusterEvent) -> None:
        self.view.cluster.apply(event)  # type: ignore[attr-defined]  # a Cluster
        self.record.observe(event)

    def bind(self, waiting: list[Json], running: list[Json], *, pod_first: bool = False) -> None:
        """What a scheduler writes: the allocation of the claim, then the binding; watches may show them the other way
        round.
        """
        pod, claim = running
        self.apply(*waiting)
        self.apply(*((pod, claim) if pod_first else (claim, pod)))

    async def quiet(self) -> None:
        """Wait until the record has followed all events."""
        for turn in range(LONGEST):
            await asyncio.sleep(0)
            if self.record.found.since and not self.record.found.behind and turn > QUIET:
                return
        raise AssertionError("the record does not settle")

    async def settled(self) -> ShadowReport:
        """The report after a moment, in which nothing happens."""
        await self.quiet()
        self.watch.now += RECENT
        found = run_at_once(self.record.report(0))
        self.watch.now -= RECENT
        return found

    async def rules(self) -> dict[str, int]:
        return {each.rule: each.pods for each in (await self.settled()).rules if each.pods}

    async def example(self) -> ShadowExample:
        """The only one."""
        (found,) = (example for each in (await self.settled()).rules for example in each.examples)
        return found


@asynccontextmanager
async def recording(shadowed: Shadowed) -> AsyncIterator[Shadowed]:
    task = asyncio.create_task(shadowed.record.run())
    try:
        await shadowed.settled()
        yield shadowed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
