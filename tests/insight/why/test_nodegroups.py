"""Nodes are reported in groups: equal nodes once, and not more groups in detail than there is time for."""

from __future__ import annotations

import pytest

from dra_extender.insight.why import nodegroups
from dra_extender.insight.why.report import Diagnosis
from tests.support.questions import diagnose
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import World


async def refused(world: World, count: int, *full: int) -> Diagnosis:
    """A pod needs two devices. On each of these nodes one of two is in use, on `full` nodes both are."""
    names = [f"n{index:02}" for index in range(count)]
    service = world.service(make_class(), *map(make_node, names), *(make_slice(name, ["a", "b"]) for name in names))
    for index, name in enumerate((*names, *(names[number] for number in full))):
        world.add(make_claim(f"holder-{index}"), make_pod(f"holder-{index}", f"holder-{index}"))
        assert await service.bind(world.api.pod(f"holder-{index}"), name) == ""
    world.add(make_claim("big", count=2), make_pod("p", "big"))
    await world.settle()
    return diagnose(service.extender.view, world.api.pod("p"))


async def test_nodes_that_differ_in_names_only_are_one_group(world: World) -> None:
    found = await refused(world, nodegroups.EXAMINED)
    (group,) = found.groups
    assert (group.count, group.requests[0].rule, group.requests[0].tally.left) == (nodegroups.EXAMINED, "in use", 1)


async def test_nodes_with_more_devices_in_use_are_another_group(world: World) -> None:
    found = await refused(world, 3, 1)
    assert [(group.nodes, group.requests[0].tally.left) for group in found.groups] == [
        (("n00", "n02"), 1),
        (("n01",), 0),
    ]


async def test_nodes_that_are_not_examined_are_a_group_and_the_answer_says_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodegroups, "EXAMINED", 2)
    found = await refused(world, 4, 1)
    assert {(group.nodes, group.examined) for group in found.groups} == {
        (("n02", "n03"), False),
        (("n00",), True),
        (("n01",), True),
    }
    assert not found.complete
