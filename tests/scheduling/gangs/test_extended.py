"""Gangs whose members use devices through extended resources."""

from __future__ import annotations

import pytest

from tests.support.scheduling.gangs import member, names, nodes, offered, schedule
from tests.support.simulation.objects import Objects, make_class, make_node
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World

RESOURCE = "example.com/gpu"


def cluster(count: int, devices: int) -> Objects:
    return [make_class(resource=RESOURCE), *list(nodes(count, devices))[1:]]


def gang(size: int, containers: int) -> Objects:
    """Each container wants one device."""
    requests = {"resources": {"requests": {RESOURCE: "1"}}}
    parts = [{"name": f"c{number}", **requests} for number in range(containers)]
    return [member(name, size=size, containers=parts) for name in names("g", size)]


@pytest.mark.parametrize(
    ("count", "devices", "containers"),
    [(1_500, 2, 1), (300, 64, 8)],
    ids=["many nodes", "many requests"],
)
async def test_a_gang_is_placed_on_a_large_cluster(world: World, count: int, devices: int, containers: int) -> None:
    """Equal nodes are searched once, and a later turn of the call finds what an earlier one has found."""
    service = world.service(*cluster(count, devices), *gang(8, containers), workers=VirtualWorkers())
    assert all(len(found) == 1 for found in await offered(service, world, *names("g", 8)))


async def test_a_node_whose_device_plugin_provides_the_resource_counts_apart(world: World) -> None:
    """Devices of two nodes suffice for a member each, and the plugin of the third has two."""
    plugin = make_node("plugin", cpu="100", **{RESOURCE: "2"})
    service = world.service(*cluster(2, 1), plugin, *gang(4, 1))
    assert sorted((await schedule(service, world, names("g", 4))).values()) == ["n1", "n2", "plugin", "plugin"]
