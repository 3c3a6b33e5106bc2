"""Pods with a claim each, and when a watch has shown that they are bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.arena import PODS, Arena


def claim(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A claim with this name; `spec` describes its devices."""
    return {"metadata": {"name": name}, "spec": {"devices": spec}}


def pod(name: str, group: str = "") -> dict[str, Any]:
    """A pod with the claim that has its name, perhaps of a PodGroup."""
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "devices"}]}}
    spec: dict[str, Any] = {
        "containers": [container],
        "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
    }
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name}, "spec": spec | {"terminationGracePeriodSeconds": 0}}


def pod_group(name: str, size: int) -> dict[str, Any]:
    """A PodGroup whose pods run together or not at all."""
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": size}}}}


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    object: _Pod = _Pod()


_decoder = msgspec.json.Decoder(_Event)


class Bindings:
    """When each pod was seen bound, by a watch."""

    def __init__(self, arena: Arena, expected: int) -> None:
        self.times: dict[str, float] = {}
        self._arena = arena
        self._expected = expected
        self._begun, self._ended = asyncio.Event(), asyncio.Event()

    async def watch(self) -> None:
        """Until cancelled. The API server ends a watch that does not keep up; the next one begins with all pods."""
        while True:
            async for line in self._arena.client.stream(PODS, {"watch": "1"}):
                self._seen(_decoder.decode(line).object)

    def _seen(self, pod: _Pod) -> None:
        if pod.spec.node_name and pod.metadata.name not in self.times:
            self.times[pod.metadata.name] = time.perf_counter()
            self._begun.set()
            if len(self.times) == self._expected:
                self._ended.set()

    async def first(self, seconds: float) -> None:
        await _within(self._begun, seconds)

    async def last(self, seconds: float) -> None:
        await _within(self._ended, seconds)

    @property
    def seconds(self) -> float:
        """From the first to the last."""
        return max(self.times.values(), default=0.0) - min(self.times.values(), default=0.0)


@asynccontextmanager
async def watched(arena: Arena, expected: int) -> AsyncIterator[Bindings]:
    """Follows the bindings of this number of pods."""
    bindings = Bindings(arena, expected)
    watching = asyncio.create_task(bindings.watch())
    try:
        yield bindings
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Wait for it, at most this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
