"""A cluster with a queue, and a kube-scheduler that takes pods from it one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from dra_extender.api.core import Pod
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import EARLY_NOMINATIONS, EarlyNominationResult
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World

ALWAYS = SchedulingConfig(nominate="always", scheduler_names=frozenset({"dra-scheduler"}))
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def with_devices(**numbers: int) -> Objects:
    """The class, and nodes with this number of devices each."""
    found: list[Any] = [make_class()]
    for name, number in numbers.items():
        found += [make_node(name, **ROOM), make_slice(name, [f"d{index}" for index in range(number)])]
    return found


def waiting(name: str, priority: int = 0, *, count: int = 1, cpu: str = "", **spec: Any) -> Objects:
    """A pod with a claim of its own."""
    container: dict[str, Any] = {"name": "main"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    made = make_pod(name, f"of-{name}", priority=priority, containers=[container], **spec)
    return [make_claim(f"of-{name}", count=count, pod=name), made]


def planning(world: World, config: SchedulingConfig = ALWAYS, /, **numbers: int) -> Service:
    """A running service, with nodes that have this number of devices each."""
    world.add(*with_devices(**numbers))
    service = world.service(config=config)
    service.start()
    return service


def nominated(world: World) -> dict[str, str]:
    """The node by the name of each pod that is nominated and not bound."""
    return {
        pod.metadata.name: pod.status.nominated_node_name
        for pod in world.api.all(Pod)
        if pod.status.nominated_node_name and not pod.spec.node_name
    }


def ended(service: Service) -> dict[EarlyNominationResult, int]:
    """How many nominations came to what."""
    return {
        value: number for value in EARLY_NOMINATIONS.values if (number := service.counted(EARLY_NOMINATIONS, value))
    }


class KubeScheduler:
    """One attempt after the other. `calls`: pod and number of nodes of each filter call. `keeps_away`: nodes by the
    name of a pod that other rules than devices keep it from.
    """

    def __init__(self, world: World, service: Service) -> None:
        self.calls: list[tuple[str, int]] = []
        self.keeps_away: dict[str, set[str]] = {}
        self._world = world
        self.service = service

    async def attempt(self, name: str) -> str:
        """The node that the pod is bound to; empty when it is refused, and its nomination cleared."""
        pod = self._world.api.pod(name)
        away = self.keeps_away.get(name, set())
        chosen = ""
        named = pod.status.nominated_node_name
        if named and named not in away:
            chosen = await self._filtered(pod, [named])
        if not chosen:
            names = [key for kind, key in self._world.api.objects if kind.__name__ == "Node" and key not in away]
            chosen = await self._filtered(pod, names) if names else ""
        if not chosen:
            refused = self._world.api.pod(name)
            status = msgspec.structs.replace(refused.status, nominated_node_name="")
            self._world.api.put(msgspec.structs.replace(refused, status=status), "refused")
            return ""
        return chosen if await self.service.bind(pod, chosen) == "" else ""

    async def _filtered(self, pod: Pod, names: list[str]) -> str:
        self.calls.append((pod.metadata.name, len(names)))
        found = await self.service.filter(pod, *names)
        return found.NodeNames[0] if found.NodeNames else ""

    async def drain(self, seconds: float = 0.02, most: int = 1000) -> list[str]:
        """Attempts at this interval, until all pods are bound or refused: the names of those bound, in
        that order.
        """
        bound, refused = [], set[str]()
        for _ in range(most):
            pods = [pod for pod in self._world.api.all(Pod) if not pod.spec.node_name]
            pods = [pod for pod in pods if pod.metadata.name not in refused]
            if not pods:
                break
            first = min(pods, key=lambda pod: -pod.spec.priority).metadata.name
            if await self.attempt(first):
                bound.append(first)
            else:
                refused.add(first)
            await asyncio.sleep(seconds)
        return bound
