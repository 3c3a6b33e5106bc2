"""A world for the verbs: an API server and any number of services (replicas) that watch it, in virtual time.

Each service has its own watch, lag and faults, and can be killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Node, Pod
from dra_extender.api.extender import ExtenderArgs, ExtenderBindingArgs, ExtenderFilterResult
from dra_extender.api.features import FeatureGates
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.learner import PlacementLearner
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.handle import Runtime
from dra_extender.scheduling.outcomes import STEPS, L, LabelledCounter, Step
from dra_extender.scheduling.ports import Workers
from tests.support.simulation.api import Api
from tests.support.simulation.client import Client
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.virtualtime import VirtualClock, VirtualLoop
from tests.support.simulation.watch import Watch

T = TypeVar("T")


class Service:
    """One replica: its scheduling, its connection, its watch and its background work."""

    def __init__(
        self,
        world: World,
        lag: float,
        config: SchedulingConfig,
        features: FeatureGates,
        strategy: PlacementStrategy,
        workers: Workers | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.client = Client(world.api)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.waits: list[float] = []
        self.gang_waits: list[float] = []
        self.cluster = cluster = Cluster(features)
        serial = iter(range(10**9))
        self.decisions = Decisions(cluster, share_ids=lambda: f"00000000-0000-4000-8000-{next(serial):012d}")
        self.placement = PlacementLearner(cluster, strategy)
        self.extender = Extender(
            cluster,
            self.decisions,
            self.client,
            runtime=Runtime(config=config, clock=clock or world.clock, observer=self),
            placement=self.placement,
            workers=workers,
        )
        self.watch = Watch(world.api, self.extender, lag, cluster.continuity)
        self.watch.set_back = self.client.die
        world.api.watches.append(self.watch)
        self._world = world
        self._tasks: list[asyncio.Task[Any]] = []

    def count(self, outcome: LabelledCounter[L], value: L) -> None:
        assert value in outcome.values, (outcome.name, value)
        self.counts[outcome.name, value] += 1

    def took(self, step: Step, seconds: float) -> None:
        assert step in STEPS and seconds >= 0, (step, seconds)

    def waited(self, seconds: float, *, gang: bool = False) -> None:
        assert seconds >= 0, seconds
        (self.gang_waits if gang else self.waits).append(seconds)

    def counted(self, outcome: LabelledCounter[L], value: L) -> int:
        """How often this came about."""
        return self.counts[outcome.name, value]

    def start(self) -> None:
        """Begin the work without a caller."""
        self.extender.restored.clear()
        self.spawn(self.extender.run())

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def filter(self, pod: Pod, *names: str) -> ExtenderFilterResult:
        names = names or tuple(node.metadata.name for node in self._world.api.all(Node))
        return await self.extender.filter(ExtenderArgs(Pod=pod, NodeNames=names))

    async def bind(self, pod: Pod, node: str) -> str:
        args = ExtenderBindingArgs(
            PodName=pod.metadata.name, PodNamespace=pod.metadata.namespace, PodUID=pod.metadata.uid, Node=node
        )
        return (await self.extender.bind(args)).Error

    def pause(self, seconds: float) -> None:
        """Send and receive nothing for this time, as a stopped process does. It wakes where it was stopped."""
        loop = asyncio.get_running_loop()
        if self.client.paused_until > loop.time():
            return
        self.client.paused_until = loop.time() + seconds
        self.watch.pause()
        loop.call_later(seconds, self.watch.resume)

    async def kill(self) -> None:
        """End as a killed process does: nothing more is sent, nothing more is received."""
        self.client.dead = True
        self.watch.alive = False
        self._world.api.watches.remove(self.watch)
        await self.stop()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.extender.drain(0.0)
        await asyncio.gather(*self._tasks, return_exceptions=True)


class World:
    """The API server and the services. `lag`: seconds from a commit to its arrival at the watches.

    Unless a test asks for it, no pod is nominated ahead of the queue: two looks in each second of virtual time are half
    of what a quiet service does.
    """

    def __init__(self) -> None:
        self.api = Api()
        self.clock = VirtualClock()
        self.services: list[Service] = []

    def service(
        self,
        *objects: KubernetesObject,
        lag: float = 0.002,
        config: SchedulingConfig | None = None,
        features: FeatureGates | None = None,
        strategy: PlacementStrategy | None = None,
        workers: Workers | None = None,
        clock: VirtualClock | None = None,
    ) -> Service:
        self.add(*objects)
        made = Service(
            self,
            lag,
            config or SchedulingConfig(nominate="never"),
            features or FeatureGates(),
            strategy or PlacementStrategy(),
            workers,
            clock,
        )
        self.services.append(made)
        return made

    def add(self, *objects: KubernetesObject) -> None:
        for obj in objects:
            self.api.put(obj)

    async def settle(self, seconds: float = 1.0) -> None:
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        for service in self.services:
            await service.stop()


@asynccontextmanager
async def story(seed: int | None = None) -> AsyncIterator[World]:
    """A world on the running virtual loop. Afterwards nothing that must never happen has happened."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), loop
    loop.shuffle(seed)
    world = World()
    try:
        yield world
    finally:
        await world.end()
    assert world.api.violations == [], world.api.violations


def replay(told: Callable[[World], Awaitable[None]], seed: int | None = None) -> None:
    """Run a story on its own loop, for tests that are not coroutines."""

    async def tell() -> None:
        async with story(seed) as world:
            await told(world)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(tell())
