"""How many nodes are offered, and which."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import pre_filter
from dra_extender.scheduling.verbs.prioritize import Offers, enough
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice, make_wishes
from tests.support.simulation.world import World

FEW = SchedulingConfig(offered_percent=0)
MANY = [f"n{index:03}" for index in range(240)]


def many_nodes(world: World) -> None:
    """Equal ones, but for the last three, which have two devices."""
    world.add(make_class())
    for name in MANY:
        world.add(make_node(name), make_slice(name, ["d0", "d1"] if name in MANY[-3:] else ["d0"]))


@pytest.mark.parametrize(
    ("nodes", "percent", "expected"),
    [
        (1, 0, 1),
        (99, 0, 99),
        (100, 0, 100),
        (500, 0, 230),
        (1_000, 0, 420),
        (5_000, 0, 500),
        (6_000, 0, 300),
        (5_000, 1, 100),
        (5_000, 40, 2_000),
        (5_000, 100, 5_000),
        (99, 10, 99),
    ],
)
def test_enough_is_what_kube_scheduler_looks_for(nodes: int, percent: int, expected: int) -> None:
    assert enough(nodes, percent) == expected


async def test_of_many_nodes_enough_are_offered_and_only_those_that_do_not_fit_have_a_reason(world: World) -> None:
    many_nodes(world)
    world.add(make_claim("c"), make_pod("p", "c"))
    answer = await world.service(config=FEW).filter(world.api.pod("p"), "unknown", *MANY)
    assert len(answer.NodeNames) == enough(241) == 118
    assert set(answer.NodeNames) < set(MANY)
    assert answer.FailedAndUnresolvableNodes == {"unknown": "node not synced yet"}


class Unread(list[str]):
    """Names that may be counted and cut, but not looked at one by one."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("somebody looks at thousands of names")


async def test_nodes_that_are_all_the_same_to_the_pod_are_not_looked_at_one_by_one(world: World) -> None:
    many_nodes(world)
    world.add(make_claim("c"), make_pod("p", "c"))
    view = world.service(config=FEW).extender.view
    prefiltered = pre_filter(view, world.api.pod("p"))
    offers = Offers()
    first, second, third = (offers.choose(view, prefiltered, Unread(MANY), 240) for _ in range(3))
    assert [first, second, third] == [MANY[:117], MANY[117:234], MANY[234:] + MANY[:111]]


async def test_every_node_has_its_turn(world: World) -> None:
    many_nodes(world)
    service = world.service(make_claim("c"), make_pod("p", "c"), config=FEW)
    seen: set[str] = set()
    for _ in range(3):
        seen.update((await service.filter(world.api.pod("p"), *MANY)).NodeNames)
    assert seen == set(MANY)


async def test_nodes_with_a_better_alternative_are_always_offered(world: World) -> None:
    many_nodes(world)
    service = world.service(make_wishes("c", 2, 1), make_pod("p", "c"), config=FEW)
    for _ in range(3):
        assert set(MANY[-3:]) < set((await service.filter(world.api.pod("p"), *MANY)).NodeNames)


async def test_few_nodes_that_fit_are_all_offered(world: World) -> None:
    many_nodes(world)
    world.add(make_claim("c", count=2), make_pod("p", "c"))
    answer = await world.service(config=FEW).filter(world.api.pod("p"), *MANY)
    assert answer.NodeNames == MANY[-3:]
    assert set(answer.FailedAndUnresolvableNodes) == set(MANY[:-3])


async def test_everything_is_offered_by_default(world: World) -> None:
    many_nodes(world)
    service = world.service(make_claim("c"), make_pod("p", "c"))
    assert (await service.filter(world.api.pod("p"), *MANY)).NodeNames == MANY
