"""Gangs that need nodes with one value of a label."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.events import Applied
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.scheduling import (
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingConstraints,
    PodGroupSpec,
    TopologyConstraint,
)
from dra_extender.scheduling.gangs.topology import KUEUE_REQUIRED, MOST_DOMAINS, PREFERRED, REQUIRED
from tests.support.scheduling.gangs import gang, names, offered, reasons
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World

RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"


def labelled(name: str, **labels: str) -> Node:
    node = make_node(name, cpu="100")
    named = {f"topology.kubernetes.io/{key}": value for key, value in labels.items()}
    return replace(node, metadata=replace(node.metadata, labels=named))


def racks(*sizes: int, devices: int = 2) -> Objects:
    """Rack i has `sizes[i]` nodes `n<i>-<j>`; the racks 0 and 1 are zone 0, the others zone 1."""
    found: list[Any] = [make_class()]
    for rack, size in enumerate(sizes):
        for number in range(size):
            name = f"n{rack}-{number}"
            found.append(labelled(name, rack=str(rack), zone=str(rack // 2)))
            found.append(make_slice(name, [f"gpu-{index}" for index in range(devices)]))
    return found


def in_topology(objects: Objects, **annotations: str) -> Objects:
    """The pods of a gang with these annotations besides."""
    return [
        with_metadata(each, annotations={**each.metadata.annotations, **annotations}) if isinstance(each, Pod) else each
        for each in objects
    ]


def rack_of(offers: list[list[str]]) -> set[str]:
    return {node[1] for names in offers for node in names}


@pytest.mark.parametrize("annotation", [REQUIRED, KUEUE_REQUIRED])
async def test_all_members_are_in_one_rack(world: World, annotation: str) -> None:
    members = in_topology(gang("g", 4), **{annotation: RACK})
    service = world.service(*racks(1, 2, 1), *members)
    assert rack_of(await offered(service, world, *names("g", 4))) == {"1"}


async def test_the_rack_that_loses_least_is_taken(world: World) -> None:
    service = world.service(*racks(3, 2, 4), *in_topology(gang("g", 3), **{REQUIRED: RACK}))
    assert rack_of(await offered(service, world, *names("g", 3))) == {"1"}


async def test_a_gang_that_fits_in_no_rack_waits(world: World) -> None:
    service = world.service(*racks(1, 1), *in_topology(gang("g", 3), **{REQUIRED: RACK}))
    assert await offered(service, world, "g-0") == [[]]
    assert await reasons(service, world, "g-0") == {
        f"gang default/g: no value of node label {RACK} has room for all pods"
    }


async def test_a_preferred_label_is_given_up_for_the_next_one(world: World) -> None:
    service = world.service(*racks(1, 1, 2, 1), *in_topology(gang("g", 5), **{PREFERRED: f"{RACK},{ZONE}"}))
    found = await offered(service, world, *names("g", 5))
    assert rack_of(found) == {"2", "3"}
    assert all(found)


async def test_a_preferred_label_that_no_node_has_changes_nothing(world: World) -> None:
    service = world.service(*racks(1, 1), *in_topology(gang("g", 4), **{PREFERRED: "no/such"}))
    assert all(await offered(service, world, *names("g", 4)))


async def test_the_others_follow_a_member_that_is_bound(world: World) -> None:
    """The rack of the bound member has too few devices for the others."""
    service = world.service(
        *racks(1, 2), make_claim("c"), make_pod("thief", "c"), *in_topology(gang("g", 4), **{REQUIRED: RACK})
    )
    places = await offered(service, world, *names("g", 4))
    assert rack_of(places) == {"1"}
    assert await service.bind(world.api.pod("g-0"), places[0][0]) == ""
    await world.settle(1.0)
    assert (await service.filter(world.api.pod("g-1"), "n0-0")).NodeNames == []
    assert rack_of(await offered(service, world, "g-1", "g-2", "g-3")) == {"1"}


async def test_the_first_rack_fits_by_cpu_and_not_by_devices(world: World) -> None:
    full = [labelled(f"n9-{number}", rack="9") for number in range(4)]
    service = world.service(*full, *racks(2, 4, 4), *in_topology(gang("g", 8), **{REQUIRED: RACK}))
    assert rack_of(await offered(service, world, *names("g", 8))) == {"1"}
    taken = [
        planned
        for place in service.extender.gangs.plans.kept_from(make_pod("x"))
        for planned in place[1].devices.results
    ]
    assert {result.pool[1] for result in taken} == {"1"}


async def test_a_preferred_label_counts_within_one_value_of_the_required_one(world: World) -> None:
    """Racks have numbers of their own in each zone."""
    found: list[Any] = [make_class()]
    for zone in ("a", "b"):
        for number in range(2):
            name = f"n{zone}-{number}"
            found += [labelled(name, rack=str(number), zone=zone), make_slice(name, ["gpu-0", "gpu-1"])]
    service = world.service(*found, *in_topology(gang("g", 4), **{REQUIRED: ZONE, PREFERRED: RACK}))
    offers = await offered(service, world, *names("g", 4))
    assert len({node[1] for (node,) in offers}) == 1
    assert len({node for (node,) in offers}) == 2


async def test_a_label_with_a_value_for_every_node_is_no_problem(world: World) -> None:
    service = world.service(*racks(*[1] * 80), *in_topology(gang("g", 3), **{PREFERRED: RACK}))
    assert all(await offered(service, world, *names("g", 3)))


async def test_two_labels_may_have_values_with_the_same_first_node(world: World) -> None:
    """Node `small` has no CPU for a pod."""
    first, small, second = labelled("n0", rack="r", zone="z"), labelled("small", rack="r"), labelled("n2", zone="z")
    small = replace(small, status=replace(small.status, allocatable=make_node("small", cpu="1").status.allocatable))
    found: list[Any] = [first, small, second, make_node("n3", cpu="100")]
    slices = [make_slice(each.metadata.name, ["a", "b"] if each.metadata.name == "n3" else ["a"]) for each in found]
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    members = in_topology(gang("g", 2, containers=containers), **{PREFERRED: f"{RACK},{ZONE}"})
    service = world.service(make_class(), *found, *slices, *members)
    answers = [await service.filter(world.api.pod(name), "n0", "n2", "n3") for name in ("g-0", "g-1")]
    assert sorted(str(each.NodeNames) for each in answers) == ["['n0']", "['n2']"]


HALF_A_NODE = [{"name": "main", "resources": {"requests": {"cpu": "60"}}}]


async def test_the_reason_says_that_not_all_values_were_tried(world: World) -> None:
    """Each rack has two devices, and CPU for one pod."""
    members = in_topology(gang("g", 2, containers=HALF_A_NODE), **{REQUIRED: RACK})
    service = world.service(*racks(*[1] * (MOST_DOMAINS + 1)), *members)
    assert await reasons(service, world, "g-0") == {
        f"gang default/g: none of the {MOST_DOMAINS} values that were tried of node label {RACK} has room for all pods"
    }


async def test_the_values_with_most_places_are_among_those_that_are_tried(world: World) -> None:
    members = in_topology(gang("g", 2, containers=HALF_A_NODE), **{REQUIRED: RACK})
    service = world.service(*racks(*[1] * (2 * MOST_DOMAINS), 2), *members)
    (first,), (second,) = await offered(service, world, "g-0", "g-1")
    assert {first, second} == {f"n{2 * MOST_DOMAINS}-0", f"n{2 * MOST_DOMAINS}-1"}


def grouped(key: str, **annotations: str) -> PodGroup:
    """PodGroup g of two pods, which requires the label if there is one."""
    constraints = PodGroupSchedulingConstraints((TopologyConstraint(key),) if key else ())
    policy = {"gang": GangSchedulingPolicy(2)}
    meta = ObjectMeta(name="g", namespace="default", uid="uid-g", annotations=annotations)
    return PodGroup(meta, PodGroupSpec(scheduling_policy=policy, scheduling_constraints=constraints))


@pytest.mark.parametrize(
    ("group", "pods", "label"),
    [
        (grouped(RACK), {}, RACK),
        (grouped(RACK), {REQUIRED: ZONE}, RACK),
        (grouped(RACK, **{REQUIRED: ZONE}), {}, RACK),
        (grouped("", **{REQUIRED: ZONE}), {}, ZONE),
        (grouped("", **{REQUIRED: ZONE}), {REQUIRED: RACK}, RACK),
        (grouped("", **{REQUIRED: RACK}), {KUEUE_REQUIRED: ZONE}, RACK),
        (grouped(""), {REQUIRED: RACK, KUEUE_REQUIRED: ZONE}, RACK),
    ],
)
async def test_the_pod_group_comes_before_annotations_and_pods_before_its_annotations(
    world: World, group: PodGroup, pods: dict[str, str], label: str
) -> None:
    """Annotations of this project come before Kueue's. No value of either label has room."""
    members = [make_pod(name, name, schedulingGroup={"podGroupName": "g"}) for name in ("a", "b")]
    service = world.service(*racks(1, devices=1), make_claim("a"), make_claim("b"), *in_topology(members, **pods))
    service.extender.apply(Applied(group))
    assert await reasons(service, world, "a") == {
        f"PodGroup default/g: no value of node label {label} has room for all pods"
    }
