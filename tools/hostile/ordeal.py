"""One run: a quiet time, then family after family of hostile things, while ordinary pods come and go.

`Ordeal` promises: a service that does not answer for `hang` seconds, or that ends, is replaced and counts as stalled,
so that the run goes on; what was measured of each thing is in `families`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec

from dra_extender.api.errors import ApiError
from dra_extender.service.process import PERIOD
from tools.hostile import eyes
from tools.hostile.eyes import Eyes
from tools.hostile.feeding import Fed, Feeding
from tools.hostile.ground import Ground
from tools.hostile.observer import Look, Task
from tools.hostile.ordinary import Stream, pod, template
from tools.hostile.things import API, ORDINARY, Thing

_SETTLE = 2.0
"""Seconds after a family in which memory may be given back."""
_GIVEN_BACK = 2 * PERIOD
_LITTLE = 2**25
_WARM = 4.0
"""Seconds before the quiet time, in which caches and connections come to be."""


class Rules(msgspec.Struct, frozen=True):
    """In seconds: the quiet time, how long pods may wait for a reason, and after which a service is replaced."""

    quiet: float
    seconds: float
    hang: float


class Trial(msgspec.Struct, frozen=True):
    """One thing and what was seen while it was there. `killed`: why the service had to be replaced."""

    fed: Fed
    looks: list[Look]
    killed: str = ""


class Family(msgspec.Struct, frozen=True):
    """`growth`: bytes of the service's memory after all things were deleted, against before; `workers`: most bytes of
    its worker processes at any time.
    """

    name: str
    trials: list[Trial]
    growth: int
    workers: int


class Quiet(msgspec.Struct, frozen=True):
    """The quiet time: what was seen, and the memory at its end."""

    looks: list[Look]
    resident: int


class Ordeal:
    """See the module. `told` gets one line for each thing."""

    def __init__(self, ground: Ground, rules: Rules, told: Callable[[str], object] = lambda line: None) -> None:
        self.families: list[Family] = []
        self.quiet = Quiet([], 0)
        self.stream = Stream(ground.client)
        self.growth = 0
        self.wrong: tuple[str, ...] = ()
        self._ground, self._rules, self._told = ground, rules, told
        self._eyes = Eyes()
        self._body = b""
        self._killed = ""
        self._workers = 0
        self._up = asyncio.Event()
        self._up.set()

    async def run(self, things: Sequence[Thing]) -> None:
        """All of it."""
        await self._ground.create(template())
        self._body = await self._question()
        await self._eyes.open(self._task())
        jobs = [asyncio.create_task(job) for job in (self.stream.run(), self._guard())]
        try:
            await asyncio.sleep(_WARM)
            await self._be_quiet()
            for name, members in groupby(things, key=lambda thing: thing.family):
                await self._family(name, list(members))
            jobs[0].cancel()
            await self.stream.finish()
            self.growth = await self._growth(self.quiet.resident)
            self.wrong = await self._ground.faults.audit()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await self._eyes.close()

    def _task(self) -> Task:
        ground = self._ground
        service = ground.service
        files = ground.authorities, ground.certificate, ground.key
        return Task(service.pid, service.insight, service.verbs, self._body, *files)

    async def _question(self) -> bytes:
        """A filter request for an ordinary pod that no scheduler has."""
        asked = pod("asked", "nobody")
        spec = template()["spec"]["spec"]
        metadata = {"name": "asked", "namespace": ORDINARY}
        await self._ground.create({"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
        asked["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "asked"}]
        path = f"/api/v1/namespaces/{ORDINARY}/pods"
        stored = msgspec.json.decode(await self._ground.client.create(path, msgspec.json.encode(asked)))
        return msgspec.json.encode({"Pod": stored, "Nodes": None, "NodeNames": self._ground.nodes})

    async def _be_quiet(self) -> None:
        start = time.monotonic()
        await asyncio.sleep(self._rules.quiet)
        self.quiet = Quiet(self._seen(start), self._ground.service.resident())

    def _seen(self, start: float) -> list[Look]:
        """What was seen since then."""
        end = time.monotonic()
        return [*self._eyes.between(start, end), *self._ground.service.turns(start, end)]

    async def _family(self, name: str, things: list[Thing]) -> None:
        before, starts = self._ground.service.resident(), self._ground.service.starts
        self._workers = 0
        trials = [await self._trial(thing) for thing in things]
        await asyncio.sleep(_SETTLE)
        if self._ground.service.starts != starts:
            before = self.quiet.resident  # the measured process is gone
        growth = await self._growth(before)
        self.families.append(Family(name, trials, growth, self._workers))

    async def _growth(self, before: int) -> int:
        """Bytes more than before, when that is little or the service has had the time to give memory back."""
        deadline = time.monotonic() + _GIVEN_BACK
        while (growth := self._ground.service.resident() - before) > _LITTLE and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        return growth

    async def _trial(self, thing: Thing) -> Trial:
        await self._up.wait()
        self._killed = ""
        start = time.monotonic()
        try:
            fed = await Feeding(self._ground, self._rules.seconds).feed(thing)
        except ApiError as problem:
            fed = Fed(thing, told=(f"the API server failed: {problem.message}",))
        await self._eyes.seen(time.monotonic())
        trial = Trial(fed, self._seen(start), self._killed)
        stall = eyes.longest(trial.looks)
        late = "   killed" if trial.killed else f"{stall.own * 1e3:6.0f} ms" if stall else "       --"
        said = f"refused: {fed.refused}" if fed.refused else fed.told[0] if fed.told else "no pod"
        self._told(f"{late}  {thing.family}: {thing.name}: {trial.killed or said[:100]}")
        return trial

    async def _guard(self) -> None:
        """Replace the service when it hangs or ends."""
        while True:
            await asyncio.sleep(0.5)
            service = self._ground.service
            self._workers = max(self._workers, service.workers())
            if service.dead():
                self._killed = "the service ended by itself"
            elif self._eyes.blind > self._rules.hang:
                self._killed = f"no answer for {self._rules.hang:g} s: killed"
            else:
                continue
            self._up.clear()
            await service.kill()
            await self._eyes.close()
            with contextlib.suppress(AssertionError):  # it is dead, then, and is started again
                await service.start()
            await self._eyes.open(self._task())
            self._up.set()
