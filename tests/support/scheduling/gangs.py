"""Gangs for the tests of the verbs: pods with the annotations of one gang, and a scheduler that tries them in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_extender.api.core import Pod
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.api.resource import ResourceClaim
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World


def member(name: str, *claims: str, gang: str = "g", size: int | str = 2, **more: Any) -> Pod:
    """A pod of the gang default/`gang`."""
    return with_metadata(make_pod(name, *claims, **more), annotations={GANG: gang, GANG_SIZE: str(size)})


def nodes(count: int, devices: int) -> Objects:
    names = [f"n{number}" for number in range(1, count + 1)]
    slices = [make_slice(name, [f"gpu-{index}" for index in range(devices)]) for name in names]
    return [make_class(), *(make_node(name, cpu="100") for name in names), *slices]


def gang(name: str, size: int, *, existing: int | None = None, **more: Any) -> Objects:
    """Members `NAME-0` …, each with a claim for one device."""
    found: list[Any] = []
    for index in range(size if existing is None else existing):
        pod = f"{name}-{index}"
        found += [make_claim(pod), member(pod, pod, gang=name, size=size, **more)]
    return found


def names(name: str, size: int) -> list[str]:
    return [f"{name}-{index}" for index in range(size)]


async def reasons(service: Service, world: World, pod: str) -> set[str]:
    return set((await service.filter(world.api.pod(pod))).FailedAndUnresolvableNodes.values())


def allocated(world: World) -> list[str]:
    return sorted(claim.metadata.name for claim in world.api.all(ResourceClaim) if claim.allocation is not None)


async def offered(service: Service, world: World, *pods: str) -> list[list[str]]:
    """The nodes that filter offers these pods, asked one after the other."""
    return [list((await service.filter(world.api.pod(pod))).NodeNames or ()) for pod in pods]


async def schedule(service: Service, world: World, pods: Sequence[str]) -> dict[str, str]:
    """Ask filter for all pods and then bind the pods that fit, as kube-scheduler does. Returns the node of each."""
    nodes = await offered(service, world, *pods)
    chosen = {pod: names[0] for pod, names in zip(pods, nodes, strict=True) if names}
    for pod, node in chosen.items():
        assert await service.bind(world.api.pod(pod), node) == "", pod
    return chosen
