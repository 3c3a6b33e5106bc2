"""Claims that are allocated and not used, or used by waiting pods."""

from __future__ import annotations

from typing import Any

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaimConsumerReference
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import Service, World

OURS = SchedulingConfig(nominate="never", scheduler_names=frozenset({"dra-scheduler"}))
NO_SWEEP = SchedulingConfig(nominate="never", sweep_after=0.0)


def report(world: World, name: str, **status: Any) -> None:
    """Give the pod this status, by default the status of an attempt without a node."""
    pod = world.api.pod(name)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    found = convert(type(pod), {"metadata": {}, "status": {"conditions": [condition]} | status}).status
    world.api.put(type(pod)(metadata=pod.metadata, spec=pod.spec, status=found))


def consumer(name: str) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")


async def allocated(world: World, small: Objects, *consumers: str, config: SchedulingConfig = NO_SWEEP) -> Service:
    """The claim c is allocated on n1 and reserved for these pods; the pod p wants it."""
    world.add(*small, make_claim("c"), make_pod("first", "c"), make_pod("p", "c"))
    maker = world.service()
    assert await maker.bind(world.api.pod("first"), "n1") == ""
    world.api.set_status("c", reserved_for=tuple(consumer(name) for name in consumers))
    world.api.drop(world.api.pod("first"))
    await maker.kill()
    service = world.service(config=config)
    service.start()
    return service
