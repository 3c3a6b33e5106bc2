"""Gangs whose devices take CPU of their node."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.groups import GANG, GANG_SIZE
from tests.support.scheduling.gangs import names, offered, reasons, schedule
from tests.support.simulation.nodeamounts import FEATURES, costs, maps, user
from tests.support.simulation.objects import Json, Objects, make_claim, make_class, make_node, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World


def nodes(*cpus: str, devices: list[Json], shared: bool = False) -> Objects:
    """Nodes with this much CPU: each has the devices, or they share them."""
    listed = [make_node(f"n{number}", cpu=cpu) for number, cpu in enumerate(cpus)]
    slices = (
        [make_slice("", devices, pool="shared")]
        if shared
        else [make_slice(each.metadata.name, devices) for each in listed]
    )
    return [make_class(), *listed, *slices]


def gang(size: int, *claims: str, cpu: str = "1") -> Objects:
    """Each member has a claim of its own, or all have these."""
    found: list[Any] = [make_claim(claim) for claim in claims or names("g", size)]
    for name in names("g", size):
        pod = user(name, *(claims or (name,)), cpu=cpu)
        found.append(with_metadata(pod, annotations={GANG: "g", GANG_SIZE: str(size)}))
    return found


@pytest.mark.parametrize("shared", [False, True])
async def test_members_share_a_node_only_if_it_has_room_for_what_their_devices_take(world: World, shared: bool) -> None:
    """Each member takes 4 of 7 CPUs: 1 by its container and 3 by its device."""
    devices = [costs(f"d{number}", perPod="3") for number in range(4)]
    service = world.service(*nodes("7", "7", devices=devices, shared=shared), *gang(2), features=FEATURES)
    assert sorted((await schedule(service, world, names("g", 2))).values()) == ["n0", "n1"]


async def test_members_that_do_not_fit_with_what_their_devices_take_wait(world: World) -> None:
    devices = [costs(f"d{number}", perPod="3") for number in range(4)]
    service = world.service(*nodes("7", "7", devices=devices), *gang(3), features=FEATURES)
    assert await offered(service, world, *names("g", 3)) == [[], [], []]
    (reason,) = await reasons(service, world, "g-0")
    assert reason.startswith("gang default/g: 2 of 3 pods fit together")


async def test_a_plan_counts_what_the_devices_of_its_members_take(world: World) -> None:
    """The second member is planned again while the first one has its place."""
    devices = [costs(f"d{number}", perPod="3") for number in range(4)]
    service = world.service(*nodes("7", "9", devices=devices), *gang(2), features=FEATURES)
    (first,), _ = await offered(service, world, "g-0", "g-1")
    answer = await service.filter(world.api.pod("g-1"), first)
    assert answer.NodeNames == ([first] if first == "n1" else [])


async def test_members_cannot_share_a_device_that_is_a_part_of_the_cpu(world: World) -> None:
    service = world.service(
        *nodes("16", devices=[maps("2", "d0"), maps("2", "d1")]), *gang(2, "one"), features=FEATURES
    )
    assert await offered(service, world, "g-0", "g-1") == [[], []]
