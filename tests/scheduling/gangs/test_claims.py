"""Gangs whose pods have many claims, or share some."""

from __future__ import annotations

import pytest

from dra_extender.allocation.budget import WorkBudget
from dra_extender.api.resource import MAX_CONSUMERS, ResourceClaim
from dra_extender.scheduling.gangs.gang import gang_of
from tests.scheduling.gangs.test_work import run
from tests.support.counting import lines
from tests.support.scheduling.gangs import member, nodes, offered, reasons
from tests.support.simulation.objects import (
    DRIVER,
    Json,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_slice,
)
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World


async def test_a_claim_of_a_gang_costs_no_more_on_many_nodes(world: World) -> None:
    size, count = 256, 8
    claims = {f"g-{index}": [f"g-{index}-{number}" for number in range(count)] for index in range(size)}
    pods = [member(name, *own, size=size) for name, own in claims.items()]
    service = world.service(*nodes(size, count), *(make_claim(each) for own in claims.values() for each in own), *pods)
    lines(lambda: run(service, world, WorkBudget()), 700 * size * count, "app")


@pytest.mark.parametrize(("pods", "shared", "refused"), [(52, "", False), (54, "", True), (54, "c", False)])
async def test_a_claim_of_a_gang_counts_twice_more(pods: int, shared: str, refused: bool, world: World) -> None:
    names = [[f"{shared or number}-{index}" for index in range(100)] for number in range(pods)]
    members = [member(f"p-{number}", *own) for number, own in enumerate(names)]
    service = world.service(*nodes(1, 1), *members)
    found = gang_of(service.extender.view, members[0])
    assert found is not None
    assert ("its pods have more than" in found.problem) == refused


def of_kind(kind: str, name: str) -> Json:
    return {"name": name, "attributes": {"kind": {"string": kind}}}


def claim_of(kind: str, name: str) -> ResourceClaim:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{kind}"'}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
    return make_claim(name, requests=[{"name": "r", "exactly": exactly}])


async def test_a_gang_on_many_nodes_may_use_devices_that_all_of_them_see(world: World) -> None:
    numbers = range(250)
    own = [each for number in numbers for each in (
        make_node(f"n{number}", cpu="100"),
        make_slice(f"n{number}", [of_kind("gpu", "gpu")]),
        claim_of("gpu", f"gpu-{number}"),
        claim_of("port", f"port-{number}"),
        member(f"g-{number}", f"gpu-{number}", f"port-{number}", size=len(numbers)),
    )]  # fmt: skip
    ports = [of_kind("port", f"port-{number}") for number in numbers]
    shared = [make_slice("", ports[part::2], pool="network", count=2, part=f"-{part}") for part in range(2)]
    service = world.service(make_class(), *own, *shared, workers=VirtualWorkers())
    assert len((await offered(service, world, "g-0"))[0]) == 1


@pytest.mark.parametrize(
    ("count", "size", "others", "full"),
    [
        (MAX_CONSUMERS + 1, MAX_CONSUMERS, 0, False),
        (MAX_CONSUMERS + 1, MAX_CONSUMERS + 1, 0, True),
        (20, 20, MAX_CONSUMERS - 20, False),
        (20, 20, MAX_CONSUMERS - 19, True),
    ],
)
async def test_pods_that_cannot_all_use_a_claim_are_not_placed(
    count: int, size: int, others: int, full: bool, world: World
) -> None:
    shared = make_allocated("shared", *(f"other-{number}" for number in range(others)))
    pods = [member(f"g-{number}", "shared", size=size) for number in range(count)]
    service = world.service(*nodes(1, 1), shared, *pods, workers=VirtualWorkers())
    if not full:
        assert await offered(service, world, "g-0") == [["n1"]]
        return
    (reason,) = await reasons(service, world, "g-0")
    assert reason == "gang default/g: resource claim default/shared is used by 256 consumers, which is the maximum"
