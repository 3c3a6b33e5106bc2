"""Pods are scheduled in clusters with amounts that no float can hold. The API server accepts such amounts."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.extender import ExtenderArgs
from dra_extender.api.resource import ResourceSlice
from dra_extender.placement.policies import PlacementStrategy, PolicyName
from tests.support.simulation.objects import DRIVER, Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World

HUGE = "1e400"
REQUESTS = [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
ABSURD = [{"name": "main", "resources": {"requests": {"cpu": HUGE, "memory": HUGE}}}]
FRAGMENTATION = {"dra-extender.dev/placement": "fragmentation"}


def counted(total: str, *amounts: str) -> Objects:
    """Devices of n1 that consume these amounts of a counter."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    spec: dict[str, Any] = {"driver": DRIVER, "pool": pool, "nodeName": "n1"}
    sets = [{"name": "s", "counters": {"memory": {"value": total}}}]
    devices = [
        {"name": f"d{number}", "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": amount}}}]}
        for number, amount in enumerate(amounts)
    ]
    parts: dict[str, dict[str, Any]] = {"counters": {"sharedCounters": sets}, "devices": {"devices": devices}}
    bodies = ({"metadata": {"name": name}, "spec": {**spec, **part}} for name, part in parts.items())
    return [convert(ResourceSlice, body) for body in bodies]


def shared(capacity: str) -> Objects:
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": {"value": capacity}}}
    return [make_slice("n1", [device])]


CASES: dict[str, Objects] = {
    "a pod of a node": [make_slice("n1", ["a"]), make_pod("huge", node="n1", containers=ABSURD)],
    "a node": [make_slice("n1", ["a"]), make_node("n3", cpu=HUGE, memory=HUGE), make_slice("n3", ["a"])],
    "a counter": counted(HUGE, HUGE, "1", "1"),
    "more than the counter": counted("1", HUGE, "1"),
    "a capacity": shared(HUGE),
}


@pytest.mark.parametrize("policy", ["first-fit", "pack", "spread", "fragmentation"])
@pytest.mark.parametrize("case", CASES)
async def test_pods_are_scheduled_beside_them(world: World, case: str, policy: PolicyName) -> None:
    objects: Objects = [make_class(), make_node("n1", cpu="8", memory="32Gi"), make_node("n2", cpu="8", memory="32Gi")]
    service = world.service(*objects, make_slice("n2", ["a"]), *CASES[case], strategy=PlacementStrategy(policy))
    for name, marks in (("p", FRAGMENTATION), ("q", {})):
        pod = with_metadata(make_pod(name, name, containers=REQUESTS), annotations=marks)
        world.add(make_claim(name), pod)
        await world.settle(0.5)
        found = await service.filter(world.api.pod(name))
        assert found.NodeNames, found
        scores = await service.extender.prioritize(ExtenderArgs(Pod=pod, NodeNames=tuple(found.NodeNames)))
        assert len(scores) == len(found.NodeNames)
        assert await service.bind(world.api.pod(name), found.NodeNames[0]) == ""
