"""What nominated pods cost does not grow with the cluster, and plans never contradict each other: counted."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderArgs
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.placement.placement import Placement
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.earlynomination import nodechoice
from dra_extender.scheduling.earlynomination.controller import CHECK_SECONDS, REMOVAL_SECONDS
from dra_extender.scheduling.earlynomination.nodechoice import CHOICES
from dra_extender.scheduling.feasibility import NodeStatuses, PreFilterResult, node_statuses
from dra_extender.scheduling.tentativeplans import TentativePlan
from dra_extender.scheduling.view import View
from tests.support.counting import calls
from tests.support.examples import examples
from tests.support.scheduling.earlynomination import (
    ALWAYS,
    KubeScheduler,
    ended,
    nominated,
    planning,
    waiting,
    with_devices,
)
from tests.support.simulation.world import Service, World, replay


async def filter_calls(world: World, nodes: int) -> int:
    """Functions called by a filter call for the one node where the pod is nominated, after the first such calls."""
    service = planning(world, **{f"n{number}": 2 for number in range(nodes)})
    for name in "abc":
        world.add(*waiting(name))
    await world.settle(2.0)
    for name in "ab":
        pod = world.api.pod(name)
        assert await service.bind(pod, (await service.filter(pod, pod.status.nominated_node_name)).NodeNames[0]) == ""
    await world.settle(0.5)
    pod = world.api.pod("c")
    args = ExtenderArgs(Pod=pod, NodeNames=(pod.status.nominated_node_name,))
    found = service.extender.filter(args)

    def drive() -> None:
        with pytest.raises(StopIteration) as end:
            found.send(None)
        assert end.value.value.NodeNames == [pod.status.nominated_node_name]

    return calls(drive)


def test_filter_for_one_node_costs_the_same_in_clusters_of_500_and_5000_nodes() -> None:
    counted: list[int] = []

    async def story(world: World, nodes: int) -> None:
        counted.append(await filter_calls(world, nodes))

    replay(partial(story, nodes=500))
    replay(partial(story, nodes=5_000))
    few, many = counted
    assert many == few
    assert few < 400


async def look_calls(world: World, pods: int) -> float:
    """Functions called per nominated pod while nothing happens and all are checked again."""
    planning(world, **{f"n{number}": 1 for number in range(pods)})
    for number in range(pods):
        world.add(*waiting(f"p{number}"))
    await world.settle(3.0)
    assert len(nominated(world)) == pods
    called = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal called
        called += event == "call"

    sys.setprofile(profile)
    await world.settle(4 * CHECK_SECONDS)
    sys.setprofile(None)
    return called / pods


def test_to_look_at_a_nominated_pod_again_costs_the_same_beside_few_and_many_others() -> None:
    counted: list[float] = []

    async def story(world: World, pods: int) -> None:
        counted.append(await look_calls(world, pods))

    replay(partial(story, pods=16))
    replay(partial(story, pods=128))
    few, many = counted
    assert many <= 1.1 * few, counted


async def test_pods_that_fit_nowhere_are_thought_about_a_few_times_only(world: World) -> None:
    planning(world, n1=1)
    for number in range(200):
        world.add(*waiting(f"p{number}", count=2))
    world.add(*waiting("other"))
    await world.settle(4.0)
    thought: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "pre_filter":
            thought.append(frame.f_code.co_name)

    sys.setprofile(profile)
    for _ in range(52):
        world.api.put(world.api.pod("other"))
        await world.settle(0.1)
    sys.setprofile(None)
    assert 200 <= len(thought) <= 300


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["pod", "pod", "bind", "stranger", "delete", "wait"]), st.integers(1, 2), st.integers(0, 2)
    ),
    max_size=25,
)


@settings(max_examples=examples(40))
@given(MOVES, st.integers(0, 2**16))
def test_plans_name_no_device_twice_and_what_does_not_fit_is_withdrawn_in_time(
    moves: list[tuple[str, int, int]], seed: int
) -> None:
    async def story(world: World) -> None:
        service = world.service(config=ALWAYS)
        async for _ in _played(world, service, moves, random.Random(seed)):
            assert _twice(service) == []
        held = {device for claim in world.api.all(ResourceClaim) for device in _devices(claim.allocation)}
        assert not held & set(_planned(service))
        assert {f"uid-{name}" for name in nominated(world)} <= service.extender.early_nomination.nominations.keys()

    replay(story)


async def _played(
    world: World, service: Service, moves: list[tuple[str, int, int]], dice: random.Random
) -> AsyncIterator[None]:
    """Make the moves; to look at the world after each, and some times while what they brought about goes on."""
    world.add(*with_devices(n1=3, n2=2, n3=1))
    service.start()
    for number, (move, count, priority) in enumerate(moves):
        pods = [pod for pod in world.api.all(Pod) if not pod.spec.node_name]
        if move == "pod":
            world.add(*waiting(f"p{number}", priority, count=count))
        elif move == "bind" and pods:
            await service.bind(dice.choice(pods), dice.choice(["n1", "n2", "n3"]))
        elif move == "stranger":
            world.add(*waiting(f"s{number}", count=count))
            await service.bind(world.api.pod(f"s{number}"), "n1")
        elif move == "delete" and world.api.all(Pod):
            world.api.delete_pod(dice.choice(world.api.all(Pod)).metadata.name)
        else:
            await asyncio.sleep(dice.choice([0.05, 0.3, 3.0]))
        await asyncio.sleep(0.03)
        yield
    for _ in range(10):
        await asyncio.sleep(0.2)
        yield
    await asyncio.sleep(CHECK_SECONDS + REMOVAL_SECONDS + 0.5)


def _planned(service: Service) -> Counter[DeviceID]:
    view = service.extender.view
    found: Counter[DeviceID] = Counter()
    plans = [each.plan for each in service.extender.early_nomination.nominations.values() if each.plan is not None]
    for plan in plans:
        for claim, allocation in plan.planned:
            known = view.ledger.by_uid(claim.metadata.uid)
            if known is not None and known.allocation is None and view.ledger.held(claim.metadata.uid) is None:
                found.update(_devices(allocation))
    return found


def _twice(service: Service) -> list[DeviceID]:
    return [device for device, number in _planned(service).items() if number > 1]


def _devices(allocation: object) -> list[DeviceID]:
    results = getattr(getattr(allocation, "devices", None), "results", ())
    return [result.id for result in results]


async def test_a_policy_compares_all_nodes_a_few_times_for_a_pod_that_fits_none_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    choose = Placement.choose

    def counting(self: Placement, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> str:
        compared.append(len(names))
        return choose(self, pod, claims, names)

    monkeypatch.setattr(Placement, "choose", counting)
    world.add(*with_devices(**{f"n{number}": 1 for number in range(100)}))
    service = world.service(config=ALWAYS, strategy=PlacementStrategy("pack"))
    service.start()
    world.add(*waiting("large", cpu="9"))
    await world.settle(1.0)
    assert nominated(world) == {}
    assert compared[0] == 100
    assert len(compared) <= 2 * CHOICES


async def test_all_nodes_are_looked_at_again_about_once_a_second_when_nominations_are_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(view: View, prefiltered: PreFilterResult, names: Sequence[str]) -> NodeStatuses:
        looks.append(len(names))
        return node_statuses(view, prefiltered, names)

    monkeypatch.setattr(nodechoice, "node_statuses", counted)
    world.add(*with_devices(n1=0, n2=0, n3=0), *waiting("p"))
    service = world.service()
    await world.settle(1.0)
    chooser = service.extender.early_nomination._chooser

    async def rounds(number: int) -> TentativePlan | None:
        for _ in range(number):
            chooser.freed()
            if (plan := await chooser.choose(world.api.pod("p"))) is not None:
                return plan
            await world.settle(0.1)
        return None

    assert await rounds(35) is None
    assert 3 <= len(looks) <= 4
    world.add(*with_devices(n4=1)[1:])
    plan = await rounds(15)
    assert plan is not None and plan.node == "n4"


async def test_a_node_that_kube_scheduler_refuses_is_tried_last(world: World) -> None:
    service = planning(world, **{f"n{number}": 4 for number in range(12)})
    kube_scheduler = KubeScheduler(world, service)
    for number in range(8):
        name = f"p{number}"
        kube_scheduler.keeps_away[name] = {"n0"}
        world.add(*waiting(name))
        await world.settle(1.5)
        assert await kube_scheduler.attempt(name) != ""
    await world.settle(5.0)
    assert ended(service) == {"made": 8, "bound": 7, "missed": 1}
