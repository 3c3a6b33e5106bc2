"""Feeds hostile things to a cluster, one after the other, and takes them away again.

`Feeding.feed` promises: what it made is gone when it returns, or said to be left; what the API server refuses is said.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from dra_extender.api.errors import ApiError, NotFoundError
from embedded_cluster import manifests
from tests.e2e.components import metric
from tools.hostile.connections import Siege
from tools.hostile.ground import Ground
from tools.hostile.observer import trust
from tools.hostile.things import (
    HOSTILE,
    MOST_BYTES,
    ORDINARY,
    Attack,
    Body,
    Burst,
    Lines,
    Objects,
    Thing,
    claim,
    request,
)

_AT_ONCE: Final = 16
_LOOK: Final = 0.2
_GONE: Final = 30.0
"""Seconds within which what is deleted has to be gone."""
_MOMENT: Final = 1.0
"""Seconds to wait after an input without an answer, such as a line in a watch."""
_PAGE: Final = 60.0
_FAIR: Final = 30.0
"""Seconds within which a pod gets its event, whatever other namespaces have."""
_RELIST: Final = 5.0
"""Seconds in which everything of a kind is listed again."""
PENDING: Final = (
    "is being evaluated",
    "is being compiled",
    "is under way",
    "connection refuse",
    "does not exist",  # the service may have been asked before it has seen what was just made
)
"""Parts of reasons that are not the last word."""


class Fed(msgspec.Struct, frozen=True):
    """What became of a thing. `refused`: the API server's refusal; `told`: the reasons that its pods got, the first one
    of them first, or what was observed of something without pods. `starved`: the pod of another namespace got no event.
    """

    thing: Thing
    told: tuple[str, ...] = ()
    refused: str = ""
    left: int = 0
    starved: bool = False


class Feeding:
    """`seconds`: how long to wait for a final reason."""

    def __init__(self, ground: Ground, seconds: float) -> None:
        self._ground, self._seconds = ground, seconds

    async def feed(self, thing: Thing) -> Fed:
        """Feed the input, wait for its effect, undo it."""
        match thing.act:
            case Objects() as objects:
                return await self._objects(thing, objects)
            case Lines(resource, lines):
                return await self._lines(thing, resource, lines)
            case Burst(writes):
                return await self._burst(thing, writes)
            case Attack() as attack:
                return await self._attack(thing, attack)

    async def _objects(self, thing: Thing, objects: Objects) -> Fed:
        pods = [body for body in objects.bodies if body["kind"] == "Pod"]
        others = [body for body in objects.bodies if body["kind"] != "Pod"]
        try:
            try:
                await _all(map(self._create, others))
                await _all(map(self._create, pods))
            except ApiError as problem:
                if not 400 <= problem.status < 500:
                    raise
                return Fed(thing, refused=problem.message)
            told = await self._told({pod["metadata"]["name"] for pod in pods})
            if objects.relisted and await self._ground.faults.expire(objects.relisted):
                await asyncio.sleep(_RELIST)
            for page in objects.pages if self._ground.open_insight else ():
                told = (*told, f"{page.partition('?')[0]}: {await _shown(self._ground.service.insight + page)}")
            return Fed(thing, told=told, starved=not await self._explained(objects.other))
        finally:
            await self._delete_all([*pods, *objects.other[1:]], [*others, *objects.other[:1]])

    async def _explained(self, other: Sequence[Body]) -> bool:
        """Whether an event says in time why the pod of another namespace does not fit."""
        for body in other:
            await self._create(body)
        for name in (body["metadata"]["name"] for body in other[1:]):
            async with _at_most(_FAIR):
                while True:
                    events = await self._ground.client.get(f"/apis/events.k8s.io/v1/namespaces/{ORDINARY}/events")
                    about = [each["regarding"]["name"] for each in msgspec.json.decode(events)["items"] if _ours(each)]
                    if name in about:
                        return True
                    await asyncio.sleep(_LOOK)
        return not other

    async def _create(self, body: Body) -> None:
        data = msgspec.json.encode(body)
        if len(data) > MOST_BYTES:
            raise ApiError(413, "RequestEntityTooLarge", "etcdserver: request is too large")
        await self._ground.client.create(manifests.path_of(body).rpartition("/")[0], data)

    async def _delete_all(self, pods: list[Body], others: list[Body]) -> None:
        await _all(map(self._delete, pods))
        await _all(map(self._delete, others))
        async with _at_most(_GONE):
            while await self.left():
                await asyncio.sleep(_LOOK)

    async def _delete(self, body: Body) -> None:
        with contextlib.suppress(NotFoundError):
            await self._ground.client.delete(manifests.path_of(body), b'{"gracePeriodSeconds":0}')

    async def left(self) -> int:
        """Hostile pods and claims that there are."""
        core, group = f"/api/v1/namespaces/{HOSTILE}", f"/apis/resource.k8s.io/v1/namespaces/{HOSTILE}"
        listed = [await self._ground.client.get(path) for path in (f"{core}/pods", f"{group}/resourceclaims")]
        return sum(len(msgspec.json.decode(page)["items"]) for page in listed)

    async def _told(self, names: set[str]) -> tuple[str, ...]:
        """The reasons of the pods, once they are final or the time is over."""
        told: dict[str, str] = {}
        async with _at_most(self._seconds):
            while any(_pending(told.get(name, "")) for name in names):
                await asyncio.sleep(_LOOK)
                listed = await self._ground.client.get(f"/api/v1/namespaces/{HOSTILE}/pods")
                for pod in msgspec.json.decode(listed)["items"]:
                    told[pod["metadata"]["name"]] = verdict(pod)
        return tuple(told.get(name, "") or "nothing" for name in sorted(names))

    async def _lines(self, thing: Thing, resource: str, lines: Iterable[bytes]) -> Fed:
        if not await self._watched(resource):
            return Fed(thing, refused="this API server writes no such lines")
        for line in lines:
            await self._ground.faults.tell(resource, line)
        await asyncio.sleep(_MOMENT)
        reported = await self._left_out()
        # A new list knows nothing of what was only told.
        await self._ground.faults.expire(resource)
        async with _at_most(_GONE):
            while left := await self._left_out():
                await asyncio.sleep(_LOOK)
        return Fed(thing, told=(f"objects left out: {reported}, after a new list: {left}",), left=left)

    async def _watched(self, resource: str) -> int:
        """How many watches there are, when all that there have ever been are there again."""
        usual = self._ground.watches
        async with _at_most(_GONE):
            while (now := await self._ground.faults.tell(resource, b"")) < usual.get(resource, 0):
                await asyncio.sleep(_LOOK)
        usual[resource] = max(now, usual.get(resource, 0))
        return now

    async def _left_out(self) -> int:
        """Objects that the service has reported as undecodable."""
        page = (await fetched(f"{self._ground.service.insight}/metrics")).decode()
        return int(metric(page, "dra_extender_undecodable_objects"))

    async def _burst(self, thing: Thing, writes: int) -> Fed:
        body = claim("burst", request())
        await self._create(body)
        try:
            done = await self._ground.faults.burst("burst", writes)
            await asyncio.sleep(_MOMENT)
            return Fed(thing, told=(f"{done:,} writes",))
        finally:
            await self._delete_all([], [body])

    async def _attack(self, thing: Thing, attack: Attack) -> Fed:
        ground = self._ground
        url = urlsplit(ground.service.verbs if attack.door == "verbs" else ground.service.insight)
        files = (ground.authorities, ground.certificate, ground.key)
        context = trust(*files) if url.scheme == "https" else None
        opened = await Siege(url.hostname or "", url.port or 0, context).lay(attack)
        return Fed(thing, told=(f"{opened} of {attack.connections} connections opened",))


async def fetched(url: str) -> bytes:
    """A page of the embedded ground's service: plain HTTP."""
    timeout = aiohttp.ClientTimeout(total=_PAGE)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
        return await answer.read()


async def _shown(url: str) -> str:
    """How a page begins, or what became of it: the service may have been restarted in between."""
    try:
        return (await fetched(url))[:200].decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError) as problem:
        return f"no answer: {type(problem).__name__}"


def verdict(pod: dict[str, Any]) -> str:
    """Where the pod is, or why it is nowhere; empty while no scheduler has tried it."""
    if node := pod["spec"].get("nodeName"):
        return f"bound to {node}"
    conditions = pod.get("status", {}).get("conditions") or ()
    found: dict[str, Any] = next((each for each in conditions if each["type"] == "PodScheduled"), {})
    return str(found.get("message", ""))


def _pending(text: str) -> bool:
    return not text or any(part in text for part in PENDING)


def _ours(event: dict[str, Any]) -> bool:
    return event.get("reason") == "DevicesUnavailable"


async def _all(jobs: Iterable[Any]) -> None:
    """Some at a time; raises the first exception, after all of them."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(job: Any) -> None:
        async with gate:
            await job

    results = await asyncio.gather(*map(one, jobs), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


@contextlib.asynccontextmanager
async def _at_most(seconds: float) -> Any:
    """No longer than that, and no error when it is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield
