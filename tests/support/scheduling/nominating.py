"""Small clusters that are full, and pods that want to be where others are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_extender.api.core import Pod
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Workers
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import Service, World

ON = SchedulingConfig(preemption="on", scheduler_names=frozenset({"dra-scheduler"}))
FOUR = {"a": 1, "b": 2, "c": 2, "d": 2}
"""All four devices are taken."""

ADVISE = msgspec.structs.replace(ON, preemption="advise")


def wanting(name: str, priority: int = 0, *, count: int = 1, **spec: Any) -> Objects:
    """A pod with a claim of its own, as of a template."""
    return [make_claim(f"of-{name}", count=count, pod=name), make_pod(name, f"of-{name}", priority=priority, **spec)]


async def running(
    world: World, service: Service, node: str, name: str, priority: int = 0, *, count: int = 1, **spec: Any
) -> None:
    """A pod that has its devices on the node."""
    world.add(*wanting(name, priority, count=count, **spec))
    assert await service.bind(world.api.pod(name), node) == ""
    await world.settle(0.1)


async def full(
    world: World,
    small: Objects,
    priorities: Mapping[str, int],
    config: SchedulingConfig = ON,
    workers: Workers | None = None,
) -> Service:
    """A service, and pods with one device each: the first two on n1, the others on n2."""
    world.add(*small)
    service = world.service(config=config, workers=workers)
    for number, (name, priority) in enumerate(priorities.items()):
        await running(world, service, "n1" if number < 2 else "n2", name, priority)
    service.start()
    return service


async def tried(world: World, service: Service, name: str) -> str:
    """One attempt of a scheduler: the node that the pod is bound to, or nothing."""
    answer = await service.filter(world.api.pod(name))
    assert not answer.Error
    if not answer.NodeNames:
        world.api.refuse_pod(name)
        return ""
    assert await service.bind(world.api.pod(name), answer.NodeNames[0]) == ""
    return answer.NodeNames[0]


async def until_bound(world: World, service: Service, name: str, seconds: float = 60.0) -> str:
    """Attempts after each requeue: the node that the pod gets; nothing when it gets none in that time."""
    requeues = -1
    for _ in range(int(seconds)):
        if service.client.requeues != requeues:
            requeues = service.client.requeues
            if node := await tried(world, service, name):
                return node
        await world.settle(1.0)
    return ""


def alive(world: World) -> set[str]:
    """Names of the pods that are there and not going."""
    return {pod.metadata.name for pod in world.api.all(Pod) if not pod.metadata.deletion_timestamp}
