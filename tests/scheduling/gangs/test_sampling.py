"""Gangs where kube-scheduler hands over a part of the nodes only (percentageOfNodesToScore)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.gangs.controller import NOT_ASKED, SAMPLE
from dra_extender.scheduling.gangs.topology import REQUIRED
from tests.support.scheduling.earlynomination import nominated, waiting
from tests.support.scheduling.gangs import gang, names
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World

RACK = "topology.kubernetes.io/rack"
CONFIG = SchedulingConfig(nominate="auto", scheduler_names=frozenset({"dra-scheduler"}))
NODES = 3 * SAMPLE


def cluster(with_devices: Sequence[int], devices: int = 1) -> Objects:
    """Nodes `n000` …; these have devices, and are in racks of their numbers' hundreds."""
    found: list[Any] = [make_class()]
    for number in range(NODES):
        name = f"n{number:03}"
        labels = {RACK: str(number // 100)}
        found.append(with_metadata(make_node(name, cpu="100"), labels=labels))
        if number in with_devices:
            found.append(make_slice(name, [f"gpu-{index}" for index in range(devices)]))
    return found


class Sampling:
    """A kube-scheduler that tries the nominated node first, and asks about the next `SAMPLE` nodes otherwise. `away`:
    nodes that a rule of its own keeps all pods from.
    """

    def __init__(self, world: World, service: Service) -> None:
        self.away: set[str] = set()
        self._world = world
        self._service = service
        self._start = 0

    async def filter(self, name: str) -> str:
        """The node for the pod; empty when it is refused."""
        pod = self._world.api.pod(name)
        named = pod.status.nominated_node_name
        if named and named not in self.away and (await self._service.filter(pod, named)).NodeNames:
            return named
        nodes = sorted(key for kind, key in self._world.api.objects if kind is Node)
        nodes = nodes[self._start :] + nodes[: self._start]
        asked = [node for node in nodes if node not in self.away][:SAMPLE]
        self._start = (self._start + SAMPLE) % len(nodes)
        return next(iter((await self._service.filter(pod, *asked)).NodeNames or ()), "")

    async def pod_by_pod(self, pods: Sequence[str]) -> None:
        for name in pods:
            if not self._world.api.pod(name).spec.node_name and (node := await self.filter(name)):
                assert await self._service.bind(self._world.api.pod(name), node) == ""

    async def cycle(self, pods: Sequence[str]) -> None:
        """All of them have a node, or none is bound and the nominations are cleared."""
        chosen = {name: await self.filter(name) for name in pods}
        for name, node in chosen.items():
            if all(chosen.values()):
                assert await self._service.bind(self._world.api.pod(name), node) == ""
            elif (pod := self._world.api.pod(name)).status.nominated_node_name:
                self._world.api.put(replace(pod, status=replace(pod.status, nominated_node_name="")), "refused")

    async def until_bound(self, pods: Sequence[str], *, cycles: bool, rounds: int = 6) -> list[str]:
        """The nodes of the pods after at most `rounds` of retries, each of them after a requeue only."""
        for _ in range(rounds):
            before = self._service.client.requeues
            await (self.cycle if cycles else self.pod_by_pod)(pods)
            await self._world.settle(5.0)
            if self._service.client.requeues == before:
                break
        return [self._world.api.pod(name).spec.node_name for name in pods]


def started(world: World, objects: Objects, config: SchedulingConfig = CONFIG) -> Service:
    world.add(*objects)
    service = world.service(config=config)
    service.start()
    return service


@pytest.mark.parametrize("cycles", [False, True], ids=["pod by pod", "cycles"])
@pytest.mark.parametrize("nodes", [(150, 250), (10, 11), (10, 250)], ids=["not asked", "asked at first", "one asked"])
async def test_members_get_the_nodes_of_the_plan_about_which_kube_scheduler_does_not_ask(
    world: World, nodes: Sequence[int], *, cycles: bool
) -> None:
    service = started(world, [*cluster(nodes), *gang("g", 2)])
    await world.settle(1.0)
    found = await Sampling(world, service).until_bound(names("g", 2), cycles=cycles)
    assert sorted(found) == [f"n{number:03}" for number in nodes]
    await world.settle(10.0)
    assert nominated(world) == {}


@pytest.mark.parametrize("cycles", [False, True], ids=["pod by pod", "cycles"])
async def test_a_required_domain_is_found_outside_of_the_nodes_of_the_call(world: World, *, cycles: bool) -> None:
    """The first two racks have one device less than the gang needs."""
    racks = [0, 1, 2, 100, 101, 102, 200, 201, 202, 203]
    members = [
        with_metadata(each, annotations={**each.metadata.annotations, REQUIRED: RACK})
        if isinstance(each, Pod)
        else each
        for each in gang("g", 4)
    ]
    service = started(world, [*cluster(racks), *members])
    await world.settle(1.0)
    found = await Sampling(world, service).until_bound(names("g", 4), cycles=cycles)
    assert sorted(found) == ["n200", "n201", "n202", "n203"]


async def test_the_reason_says_that_the_pod_is_nominated(world: World) -> None:
    service = started(world, [*cluster((250, 251)), *gang("g", 2)])
    answer = await service.filter(world.api.pod("g-0"), *(f"n{number:03}" for number in range(SAMPLE)))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {f"gang default/g: {NOT_ASKED}"}
    await world.settle(1.0)
    assert nominated(world).keys() == {"g-0", "g-1"}


async def test_a_member_that_a_rule_keeps_from_its_nominated_node_gets_another_one(world: World) -> None:
    service = started(world, [*cluster((150, 160, 170)), *gang("g", 2)])
    await world.settle(1.0)
    scheduler = Sampling(world, service)
    await scheduler.filter("g-0")
    await world.settle(1.0)
    scheduler.away = {nominated(world)["g-0"]}
    found = await scheduler.until_bound(names("g", 2), cycles=False)
    assert set(found) == {"n150", "n160", "n170"} - scheduler.away


async def test_nominations_end_with_the_plan(world: World) -> None:
    service = started(world, [*cluster((250, 251)), *gang("g", 2), make_claim("c"), make_pod("single", "c")])
    await Sampling(world, service).filter("g-0")
    await world.settle(1.0)
    assert len(nominated(world)) == 2
    world.api.delete_pod("g-1")
    await world.settle(3.0)
    assert nominated(world) == {}
    assert (await service.filter(world.api.pod("single"), "n250")).NodeNames == ["n250"]


@pytest.mark.parametrize(
    ("config", "asked"),
    [(replace(CONFIG, nominate="never"), SAMPLE), (CONFIG, SAMPLE - 1)],
    ids=["the setting", "fewer nodes than kube-scheduler looks for"],
)
async def test_nothing_is_nominated_and_the_reason_is_that_of_the_nodes_asked(
    world: World, config: SchedulingConfig, asked: int
) -> None:
    service = started(world, [*cluster((250, 251)), *gang("g", 2)], config)
    answer = await service.filter(world.api.pod("g-0"), *(f"n{number:03}" for number in range(asked)))
    (reason,) = set(answer.FailedAndUnresolvableNodes.values())
    assert "fits on no node" in reason
    await world.settle(2.0)
    assert nominated(world) == {}


async def test_nodes_that_do_not_suit_the_pod_are_not_missing_in_the_call(world: World) -> None:
    """Such as those of the control plane: the call has all other nodes."""
    service = started(world, [*cluster((0, 250)), *gang("g", 2)])
    node = world.api.objects[Node, "n250"]
    world.api.put(replace(node, spec=replace(node.spec, unschedulable=True)))
    await world.settle(1.0)
    answer = await service.filter(world.api.pod("g-0"), *(f"n{number:03}" for number in range(NODES) if number != 250))
    (reason,) = set(answer.FailedAndUnresolvableNodes.values())
    assert "fit together" in reason


async def test_kube_scheduler_has_the_last_word_where_a_rule_of_its_own_leaves_nodes_out(world: World) -> None:
    """No pod may use the smallest rack that suffices, as if its volume were in another zone."""
    members = [
        with_metadata(each, annotations={**each.metadata.annotations, REQUIRED: RACK})
        if isinstance(each, Pod)
        else each
        for each in gang("g", 2)
    ]
    service = started(world, [*cluster((0, 1, 100, 101, 102)), *members])
    await world.settle(1.0)
    scheduler = Sampling(world, service)
    scheduler.away = {f"n{number:03}" for number in range(100)}
    found = await scheduler.until_bound(names("g", 2), cycles=False)
    assert set(found) < {"n100", "n101", "n102"}


async def test_members_of_a_scheduler_that_is_not_served_are_not_nominated(world: World) -> None:
    config = SchedulingConfig(nominate="auto", scheduler_names=frozenset({"dra-scheduler"}))
    service = started(world, [*cluster((150, 250)), *gang("g", 2, schedulerName="other")], config)
    await world.settle(1.0)
    await service.filter(world.api.pod("g-0"), *(f"n{number:03}" for number in range(SAMPLE)))
    await world.settle(1.0)
    assert nominated(world) == {}


async def test_members_that_the_watch_shows_too_late_take_no_turn_of_other_pods(world: World) -> None:
    config = SchedulingConfig(nominate="always", scheduler_names=frozenset({"dra-scheduler"}))
    service = started(world, [*cluster(range(150, 290)), *gang("g", 64)], config)
    await world.settle(1.0)
    world.add(*waiting("other"))
    await world.settle(0.005)
    service.watch.disconnect([Pod])
    for name in names("g", 64):
        world.api.put(with_metadata(world.api.pod(name), labels={"changed": "yes"}))
    await service.filter(world.api.pod("g-0"), *(f"n{number:03}" for number in range(SAMPLE)))
    await world.settle(3.0)
    assert "other" in nominated(world)
    assert service.client.calls.count("nominate_pod") == 65
