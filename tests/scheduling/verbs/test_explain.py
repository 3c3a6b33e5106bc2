"""Why a pod does not fit, in groups of nodes that refuse it alike."""

from __future__ import annotations

import pytest

from dra_extender.scheduling.verbs import explain
from dra_extender.scheduling.verbs.explain import PodExplanation, explain_pod
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World


def named(count: int) -> list[str]:
    return [f"n{index:02}" for index in range(count)]


async def busy(world: World, nodes: list[str], *more: str) -> Service:
    """Nodes with two devices each; one of them is in use on every node, and both on those in `more`."""
    service = world.service(make_class(), *map(make_node, nodes), *(make_slice(name, ["a", "b"]) for name in nodes))
    for index, name in enumerate((*nodes, *more)):
        holder = f"holder-{index}"
        world.add(make_claim(holder), make_pod(holder, holder))
        assert await service.bind(world.api.pod(holder), name) == ""
    return service


async def why(world: World, service: Service, nodes: list[str], count: int = 2) -> PodExplanation:
    world.add(make_claim("big", count=count), make_pod("p", "big"))
    await world.settle()
    return explain_pod(service.extender.view, world.api.pod("p"), nodes)


async def test_nodes_that_differ_only_in_names_are_one_group(world: World) -> None:
    nodes = named(explain.EXAMINED + 3)
    found = await why(world, await busy(world, nodes), nodes)
    (group,) = found.groups
    assert group.nodes == tuple(nodes)
    assert found.text().splitlines()[2:] == [
        f"{len(nodes)} nodes: cannot allocate all claims (n00, n01, n02, n03, n04, ...)",
        "  node n00, for example:",
        "    claim default/big, request r wants 2 devices; 2 in the pools, 1 of them left",
        "      1 is in use (gpu.example.com/n00/a)",
        "    stuck at claim default/big, request r: 2 wanted, 1 left",
    ]


async def test_nodes_are_told_apart_by_how_much_is_in_use(world: World) -> None:
    found = await why(world, await busy(world, named(3), "n01"), named(3))
    assert [group.nodes for group in found.groups] == [("n00", "n02"), ("n01",)]
    assert found.text().splitlines()[-4:] == [
        "1 node: cannot allocate all claims (n01)",
        "  claim default/big, request r wants 2 devices; 2 in the pools, 0 of them left",
        "    2 are in use (gpu.example.com/n01/a, gpu.example.com/n01/b)",
        "  stuck at claim default/big, request r: 2 wanted, 0 left",
    ]


async def test_nodes_beyond_those_that_are_examined_are_a_group_of_their_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "EXAMINED", 2)
    found = await why(world, await busy(world, named(4), "n01"), named(4))
    assert [(group.nodes, group.examined) for group in found.groups] == [
        (("n02", "n03"), False),
        (("n00",), True),
        (("n01",), True),
    ]
    assert found.text().splitlines()[3] == "  not examined one by one"
