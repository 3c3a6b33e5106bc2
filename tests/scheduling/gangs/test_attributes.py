"""Gangs whose devices need one value of an attribute."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.scheduling import GangSchedulingPolicy, PodGroup, PodGroupSpec
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.gangs.attributes import MOST_ATTRIBUTES, MOST_VALUES, SAME
from dra_extender.scheduling.gangs.joint import UNDECIDED
from dra_extender.scheduling.gangs.topology import PREFERRED
from tests.support.scheduling.gangs import gang, member, names, offered, reasons, schedule
from tests.support.simulation.objects import DRIVER, Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World

CLIQUE = f"{DRIVER}/clique"
ZONE = "topology.kubernetes.io/zone"


def cliques(*cliques: str) -> Objects:
    """Nodes `n0` …: one device for each letter, which is its clique."""
    found: list[Any] = [make_class()]
    for number, letters in enumerate(cliques):
        devices = [
            {"name": f"{letter}-{index}", "attributes": {"clique": {"string": letter}}}
            for index, letter in enumerate(letters)
        ]
        found += [make_node(f"n{number}", cpu="100"), make_slice(f"n{number}", devices)]
    return found


def alike(objects: Objects, written: str = CLIQUE, **more: str) -> Objects:
    """The pods of a gang with the annotation besides."""
    return [
        with_metadata(each, annotations={**each.metadata.annotations, SAME: written, **more})
        if isinstance(each, Pod)
        else each
        for each in objects
    ]


def used(world: World, *claims: str) -> set[str]:
    """The cliques of the devices of these claims."""
    allocations = [world.api.claim(claim).allocation for claim in claims]
    return {result.device[0] for each in allocations if each is not None for result in each.devices.results}


async def test_all_members_have_devices_of_one_clique(world: World) -> None:
    """The first device of each node is of another clique than the devices that all members can have."""
    service = world.service(*cliques("xz", "yz", "vz"), *alike(gang("g", 3)))
    assert len(await schedule(service, world, names("g", 3))) == 3
    assert used(world, *names("g", 3)) == {"z"}


async def test_the_clique_that_loses_least_is_taken(world: World) -> None:
    service = world.service(*cliques("aaa", "bb", "cccc"), *alike(gang("g", 2)))
    assert await offered(service, world, "g-0", "g-1") == [["n1"], ["n1"]]


async def test_a_clique_for_all_members_comes_before_one_for_as_many_as_are_needed(world: World) -> None:
    objects = alike(gang("g", 2, existing=3))
    service = world.service(*cliques("bb", "aaa"), *objects)
    assert await offered(service, world, *names("g", 3)) == [["n1"], ["n1"], ["n1"]]


async def test_a_gang_that_fits_in_no_clique_waits_and_holds_nothing(world: World) -> None:
    service = world.service(*cliques("xy", "xy"), *alike(gang("g", 3)))
    reason = f"gang default/g: no value of device attribute {CLIQUE} has room for all pods"
    assert [await reasons(service, world, name) for name in names("g", 3)] == [{reason}] * 3
    assert len(service.extender.gangs.plans) == 0


async def test_an_attribute_that_no_device_has_is_the_reason_of_every_member(world: World) -> None:
    service = world.service(*cliques("xy"), *alike(gang("g", 2), "example.com/rail"))
    reason = "gang default/g: no device has attribute example.com/rail"
    assert [await reasons(service, world, name) for name in names("g", 2)] == [{reason}] * 2
    assert len(service.extender.gangs.plans) == 0


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("clique", f'annotation {SAME} of its pods must name attributes as DOMAIN/NAME, not "clique"'),
        ("/", f'annotation {SAME} of its pods must name attributes as DOMAIN/NAME, not "/"'),
        (
            ",".join(f"a/{number}" for number in range(MOST_ATTRIBUTES + 1)),
            f"annotation {SAME} of its pods names more than {MOST_ATTRIBUTES} attributes",
        ),
        ("example.com/" + "x" * 100_000, "no device has attribute example.com/" + "x" * 84),
    ],
)
async def test_what_is_wrong_with_the_annotation_is_the_reason(world: World, written: str, reason: str) -> None:
    service = world.service(*cliques("xx"), *alike(gang("g", 2), written))
    assert await reasons(service, world, "g-0") == {f"gang default/g: {reason}"}


async def test_members_that_ask_for_different_attributes_wait(world: World) -> None:
    service = world.service(*cliques("xx"), *alike(gang("g", 2))[:2], *alike(gang("g", 2), "example.com/rail")[2:])
    assert await reasons(service, world, "g-0") == {f"gang default/g: its pods have different annotations {SAME}"}


async def test_the_annotation_may_be_on_the_pod_group(world: World) -> None:
    pods = [make_pod(name, name, schedulingGroup={"podGroupName": "g"}) for name in ("a", "b")]
    policy = PodGroupSpec(scheduling_policy={"gang": GangSchedulingPolicy(2)})
    group = PodGroup(ObjectMeta(name="g", namespace="default", uid="uid-g", annotations={SAME: CLIQUE}), policy)
    service = world.service(*cliques("xz", "yz"), make_claim("a"), make_claim("b"), *pods, group)
    assert len(await schedule(service, world, ["a", "b"])) == 2
    assert used(world, "a", "b") == {"z"}


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_others_follow_a_member_that_is_bound(world: World, restarted: bool) -> None:
    service = world.service(*cliques("zz", "xxxx", "zzz"), *alike(gang("g", 4)))
    places = await offered(service, world, *names("g", 4))
    assert await service.bind(world.api.pod("g-0"), places[0][0]) == ""
    await world.settle(1.0)
    other = world.service() if restarted else service
    assert len(await schedule(other, world, names("g", 4)[1:])) == 3
    assert len(used(world, *names("g", 4))) == 1


async def test_members_that_have_devices_of_two_cliques_are_the_reason_of_the_others(world: World) -> None:
    service = world.service(*cliques("xyx"), *gang("g", 2))
    assert len(await schedule(service, world, ["g-0", "g-1"])) == 2
    world.add(*alike(gang("g", 2, existing=3)[-2:]))
    await world.settle(1.0)
    assert await reasons(service, world, "g-2") == {
        f"gang default/g: its pods that have devices already have different values of device attribute {CLIQUE}"
    }


async def test_a_member_without_devices_may_go_where_no_device_has_the_value(world: World) -> None:
    """Node n0 has the devices and room for two pods."""
    pods = alike([*gang("g", 3, existing=2), member("g-2", size=3)])
    service = world.service(*cliques("zz", "xy"), make_node("n2", cpu="100"), *pods)
    world.add(make_node("n0", cpu="100", pods="2"))
    await world.settle(1.0)
    places = await offered(service, world, *names("g", 2))
    assert places == [["n0"], ["n0"]]


async def test_devices_that_all_nodes_see_count_on_all_nodes(world: World) -> None:
    devices: list[Any] = [{"name": f"d{number}", "attributes": {"clique": {"string": "z"}}} for number in range(2)]
    objects: list[Any] = [make_class(), *(make_node(f"n{number}", cpu="100", pods="1") for number in range(2))]
    service = world.service(*objects, make_slice("", devices, pool="net"), *alike(gang("g", 2)))
    assert len(await schedule(service, world, ["g-0", "g-1"])) == 2


async def test_a_gang_that_is_not_decided_is_told_so(world: World) -> None:
    """Not that no value has room."""
    config = SchedulingConfig(question_work=1)
    service = world.service(*cliques("zz"), *alike(gang("g", 2)), config=config, workers=VirtualWorkers())
    assert await reasons(service, world, "g-0") == {f"gang default/g: {UNDECIDED}"}


async def test_two_attributes_need_one_value_each(world: World) -> None:
    devices: list[Any] = [
        {"name": f"d{number}", "attributes": {"clique": {"string": clique}, "rail": {"int": rail}}}
        for number, (clique, rail) in enumerate([("x", 1), ("x", 2), ("y", 2), ("y", 1), ("x", 2)])
    ]
    gangs = alike(gang("g", 2), f"{CLIQUE}, {DRIVER}/rail")
    service = world.service(make_class(), make_node("n0", cpu="100"), make_slice("n0", devices), *gangs)
    assert len(await schedule(service, world, ["g-0", "g-1"])) == 2
    allocations = [world.api.claim(name).allocation for name in ("g-0", "g-1")]
    assert sorted(each.devices.results[0].device for each in allocations if each is not None) == ["d1", "d4"]


async def test_a_clique_within_one_zone_comes_first(world: World) -> None:
    """Clique x spans the zones; y is larger and in one zone."""
    objects: list[Any] = [
        replace(each, metadata=replace(each.metadata, labels={ZONE: each.metadata.name[1]}))
        if isinstance(each, Node)
        else each
        for each in cliques("x", "xyyy")
    ]
    service = world.service(*objects, *alike(gang("g", 2), **{PREFERRED: ZONE}))
    assert len(await schedule(service, world, ["g-0", "g-1"])) == 2
    assert used(world, "g-0", "g-1") == {"y"}


async def test_values_that_only_one_device_has_do_not_hide_larger_groups(world: World) -> None:
    single: list[Any] = [
        {"name": f"d{number}", "attributes": {"clique": {"string": f"s{number}"}}} for number in range(MOST_VALUES + 8)
    ]
    objects = [make_node("n9", cpu="100"), make_slice("n9", single), *cliques("zz")]
    service = world.service(*objects, *alike(gang("g", 2)))
    assert await offered(service, world, "g-0", "g-1") == [["n0"], ["n0"]]
    alone = world.service(*alike(gang("h", 3)))
    (reason,) = await reasons(alone, world, "h-0")
    assert f"none of the {MOST_VALUES} most frequent values of device attribute" in reason


def listing(*counts: int) -> dict[str, Any]:
    """A device with lists of this many values in the attributes `a0`, `a1` …"""
    return {f"a{number}": {"strings": [f"s{index}" for index in range(count)]} for number, count in enumerate(counts)}


@pytest.mark.parametrize(("counts", "fits"), [((8, 8), True), ((8, 9), False), ((12, 12, 12, 12), False)])
async def test_a_device_whose_lists_make_too_many_combinations_counts_as_one_without_them(
    world: World, counts: tuple[int, ...], fits: bool
) -> None:
    devices: list[Any] = [{"name": f"d{number}", "attributes": listing(*counts)} for number in range(2)]
    written = ", ".join(f"{DRIVER}/a{number}" for number in range(len(counts)))
    features = FeatureGates(DRAListTypeAttributes=True)
    world.add(make_class(), make_node("n0", cpu="100"), make_slice("n0", devices), *alike(gang("g", 2), written))
    service = world.service(features=features)
    assert (await offered(service, world, "g-0", "g-1") == [["n0"], ["n0"]]) is fits
