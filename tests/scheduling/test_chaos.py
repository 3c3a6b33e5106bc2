"""Everything at once, from a seed: replicas, lag, faults before and after commits, kills, deleted pods.

The API server in memory checks at each commit what must never happen. When the faults end, every pod that fits is
bound, no device is in two claims, and nothing is held.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from app.api.core import Pod
from app.api.errors import ApiError, ConflictError, OutcomeUnknownError, ThrottledError, UnreachableError
from app.api.meta import Condition
from app.api.resource import ResourceClaim
from app.scheduling.limits import Limits
from tests.scheduling.client import When
from tests.scheduling.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.scheduling.world import Replay, Service, World

LIMITS = Limits(bind_seconds=20.0, scheduler_names=frozenset({"dra-scheduler"}))
WRITES = (
    "add_finalizer",
    "write_status",
    "bind_pod",
    "deallocate",
    "annotate",
    "create_claim",
    "delete_claim",
    "patch_pod_status",
    "remove_finalizer",
)
GPU = "example.com/gpu"
READS = ("read_claim", "read_pod")
FAULTS: list[tuple[ApiError, tuple[When, ...]]] = [
    (ConflictError(409, "Conflict"), ("before",)),
    (ThrottledError(429, "TooManyRequests"), ("before",)),
    (UnreachableError(0, "Unreachable"), ("before",)),
    (OutcomeUnknownError(500, "InternalError"), ("before", "after", "late")),
    (OutcomeUnknownError(0, "Timeout"), ("before", "after", "late")),
]


class Chaos:
    """Two nodes, six devices, more pods than devices at times, one or two replicas."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.serial = 0
        self.extended = self.dice.random() < 0.5
        world.add(make_class(resource=GPU), make_node("n1"), make_node("n2"))
        world.add(make_slice("n1", ["a", "b", "c"]), make_slice("n2", ["a", "b", "c"]))
        self.services = [self.new_service() for _ in range(self.dice.choice([1, 1, 2]))]
        self.calls: list[asyncio.Task[Any]] = []

    def new_service(self) -> Service:
        service = self.world.service(lag=self.dice.choice([0.0, 0.002, 0.05, 0.5]), limits=LIMITS)
        service.start()
        return service

    def pending(self) -> list[Pod]:
        return [pod for pod in self.world.api.all(Pod) if not pod.spec.node_name]

    # what can happen

    def add_pod(self) -> None:
        self.serial += 1
        name = f"{self.serial}"
        if self.extended and self.dice.random() < 0.3:
            container = {"name": "main", "resources": {"requests": {GPU: "1"}}}
            self.world.add(make_pod(f"p{name}", containers=[container]))
            return
        shared = [claim.metadata.name for claim in self.world.api.all(ResourceClaim) if not claim.metadata.controller]
        if shared and self.dice.random() < 0.3:
            self.world.add(make_pod(f"p{name}", self.dice.choice(shared)))
            return
        owner = f"p{name}" if self.dice.random() < 0.7 else ""
        count = self.dice.choice([1, 1, 2])
        self.world.add(make_claim(f"c{name}", count=count, pod=owner), make_pod(f"p{name}", f"c{name}"))

    def delete_pod(self) -> None:
        pods = self.world.api.all(Pod)
        if pods:
            self.world.api.delete_pod(self.dice.choice(pods).metadata.name)

    def fault(self) -> None:
        error, times = self.dice.choice(FAULTS)
        when = self.dice.choice(times)
        client = self.dice.choice(self.services).client
        operations = WRITES if isinstance(error, ConflictError) else (*WRITES, *READS)
        client.fail(
            self.dice.choice(operations), error, when, times=self.dice.randint(1, 3), delay=self.dice.random() * 5
        )

    def touch(self) -> None:
        claims = self.world.api.all(ResourceClaim)
        if claims:
            self.world.api.touch(self.dice.choice(claims).metadata.name)

    async def kill(self) -> None:
        index = self.dice.randrange(len(self.services))
        await self.services[index].kill()
        self.services[index] = self.new_service()

    async def schedule(self, service: Service, pod: Pod) -> None:
        """One cycle of a scheduler for one pod."""
        fits = (await service.filter(pod)).NodeNames
        if fits:
            self.calls.append(service.spawn(service.bind(pod, self.dice.choice(fits))))
        elif self.exists(pod) and not pod.status.conditions:
            condition = Condition(type="PodScheduled", status="False", reason="Unschedulable")
            status = msgspec.structs.replace(pod.status, conditions=(condition,))
            self.world.api.put(msgspec.structs.replace(pod, status=status))

    async def step(self) -> None:
        action = self.dice.random()
        if action < 0.2:
            self.add_pod()
        elif action < 0.3:
            self.delete_pod()
        elif action < 0.42:
            self.fault()
        elif action < 0.46:
            self.touch()
        elif action < 0.5:
            await self.kill()
        elif pods := self.pending():
            await self.schedule(self.dice.choice(self.services), self.dice.choice(pods))
        await self.world.settle(self.dice.choice([0.0, 0.001, 0.01, 0.3]))

    async def end(self) -> None:
        """No more faults: everybody gets a chance again and again."""
        for service in self.services:
            service.client.faults.clear()
        for _ in range(30):
            for pod in self.pending():
                if self.exists(pod):
                    await self.schedule(self.dice.choice(self.services), pod)
            await self.world.settle(10.0)
            self.world.api.clean_up()

    def exists(self, pod: Pod) -> bool:
        """Whether this very version is the stored one."""
        return self.world.api.objects.get((Pod, pod.metadata.key)) is pod


async def check(chaos: Chaos) -> None:
    world = chaos.world
    assert world.api.doubles() == []
    for service in chaos.services:
        assert service.scheduling.state.cluster.ledger.holds() == ()
        assert service.scheduling.binds_under_way == 0
    for pod in chaos.pending():
        for service in chaos.services:
            assert (await service.filter(pod)).NodeNames == [], pod.metadata.name
    bound = {pod.metadata.uid for pod in world.api.all(Pod) if pod.spec.node_name}
    for claim in world.api.all(ResourceClaim):
        users = {entry.uid for entry in claim.status.reserved_for}
        assert users <= bound, claim.metadata.name
        assert bool(users) == (claim.allocation is not None), claim.metadata.name


def run(replay: Replay, seed: int, steps: int) -> None:
    async def story(world: World) -> None:
        chaos = Chaos(world, seed)
        for _ in range(steps):
            await chaos.step()
        await chaos.end()
        await check(chaos)

    replay(story, seed)


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_doubled_lost_or_left_behind(replay: Replay, seed: int) -> None:
    run(replay, seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_nothing_is_doubled_lost_or_left_behind_in_many_runs(replay: Replay, block: int) -> None:
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        run(replay, seed, 100)
