"""Between filter and eviction, a node may change so that it no longer suits the pod: then no pod is evicted there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED
from dra_extender.scheduling.preemption import evaluator
from dra_extender.scheduling.preemption.candidates import suited
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View
from tests.support.scheduling.gangs import gang, names, nodes
from tests.support.scheduling.nominating import FOUR, ON, full, running, tried, until_bound, wanting
from tests.support.simulation.objects import Json, Objects, make_pod
from tests.support.simulation.world import World

BOTH = ("n1", "n2")
ROOM = {"cpu": "4", "memory": "4Gi", "pods": "10"}
CHANGES: dict[str, Json] = {
    "cordon": {"spec": {"unschedulable": True}},
    "taint": {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}},
    "label": {"metadata": {"labels": {"pool": "two"}}},
    "cpu": {"status": {"allocatable": ROOM | {"cpu": "1"}}},
    "memory": {"status": {"allocatable": ROOM | {"memory": "1Gi"}}},
    "pods": {"status": {"allocatable": ROOM | {"pods": "1"}}},
}


def requesting(**amounts: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": amounts}}]}


def change(world: World, how: Json, *names: str) -> None:
    """Change these nodes, which have room for all pods otherwise."""
    for name in names:
        known = to_builtins(world.api.objects[Node, name])
        whole = {"metadata": {"labels": {"pool": "one"}}, "spec": {}, "status": {"allocatable": ROOM}} | how
        world.api.put(convert(Node, {**whole, "metadata": known["metadata"] | whole["metadata"]}))


@pytest.mark.parametrize("seconds", [0.0, 1800.0], ids=["at once", "half an hour later"])
@pytest.mark.parametrize("how", CHANGES.values(), ids=CHANGES)
async def test_no_pod_is_evicted_on_nodes_that_kube_scheduler_refuses_since_the_last_call_of_filter(
    world: World, small: Objects, how: Json, seconds: float
) -> None:
    service = await full(world, small, FOUR)
    change(world, {}, *BOTH)
    world.api.protected |= set(FOUR) if seconds else set()
    world.add(*wanting("p", 10, nodeSelector={"pool": "one"}, **requesting(cpu="2", memory="2Gi")))
    await tried(world, service, "p")
    await world.settle(seconds / 60.0)
    change(world, how, *BOTH)
    await world.settle(seconds)
    world.api.protected.clear()
    await world.settle(300.0)
    assert world.api.evicted == []
    change(world, {}, *BOTH)
    await world.settle(120.0)
    assert world.api.evicted == ["a"]


@pytest.mark.parametrize("how", CHANGES.values(), ids=CHANGES)
async def test_no_further_pod_is_evicted_on_a_node_that_changes_between_two_evictions(
    world: World, small: Objects, how: Json
) -> None:
    service = await full(world, small, FOUR)
    change(world, {}, *BOTH)
    world.add(*wanting("p", 10, count=2, nodeSelector={"pool": "one"}, **requesting(cpu="2", memory="2Gi")))
    service.client.latency = 0.5
    how = how | {"status": {"allocatable": ROOM | {"pods": "0"}}} if how == CHANGES["pods"] else how
    world.api.hooks["evict_pod"] = lambda: change(world, how, *BOTH)
    await tried(world, service, "p")
    await world.settle(300.0)
    assert world.api.evicted == ["b"]
    assert service.counted(NOMINATIONS_ENDED, "lost") == 1


@pytest.mark.parametrize(("cpu", "evicted"), [("2", ["a"]), ("2500m", [])], ids=["room", "no room"])
async def test_what_the_victims_use_themselves_keeps_nobody_from_their_node(
    world: World, small: Objects, cpu: str, evicted: list[str]
) -> None:
    """Another pod takes CPU while the nomination is stored: p has room only when the victim is gone."""
    world.add(*small)
    service = world.service(config=ON)
    change(world, {}, *BOTH)
    for name, priority in {"a": 1, "b": 20}.items():
        await running(world, service, "n1", name, priority, **requesting(cpu="500m"))
    service.start()
    world.add(*wanting("p", 10, **requesting(cpu="1500m")))
    service.client.latency = 0.5
    world.api.hooks["patch_pod_status"] = lambda: world.add(
        make_pod("other", node="n1", priority=100, **requesting(cpu=cpu))
    )
    await world.settle(1.0)
    assert not (await service.filter(world.api.pod("p"), "n1")).NodeNames
    await world.settle(20.0)
    assert world.api.evicted == evicted


async def test_a_device_that_becomes_free_on_a_node_that_the_pod_must_not_use_does_not_count(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    change(world, {}, *BOTH)
    world.add(*wanting("p", 10))
    await tried(world, service, "p")
    change(world, CHANGES["cordon"], "n2")
    world.api.delete_pod("d")
    await world.settle(20.0)
    assert (world.api.evicted, service.counted(NOMINATIONS_ENDED, "fits")) == (["a"], 0)


async def test_after_a_nomination_in_vain_no_pod_is_evicted_until_filter_refuses_the_pod_again(
    world: World, small: Objects
) -> None:
    """kube-scheduler has a rule for p that the service does not know, and no longer calls filter."""
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10))
    await tried(world, service, "p")
    for number in range(30):
        await world.settle(60.0)
        if number == 5:
            await running(world, service, "n1", "again", 1)
    assert world.api.evicted == ["a"]
    assert service.counted(NOMINATIONS_ENDED, "expired") == 1
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["a", "again"]


async def test_no_pod_is_evicted_for_a_gang_on_nodes_that_no_longer_suit_its_pods(world: World) -> None:
    world.add(*nodes(2, 2))
    service = world.service(config=ON)
    for number in range(4):
        await running(world, service, f"n{1 + number // 2}", f"p{number}")
    service.start()
    world.add(*gang("g", 2, priority=10))
    for pod in names("g", 2):
        await tried(world, service, pod)
    change(world, CHANGES["taint"], *BOTH)
    await world.settle(300.0)
    assert world.api.evicted == []
    change(world, {}, *BOTH)
    await world.settle(120.0)
    assert len(world.api.evicted) == 2


async def test_for_a_gang_the_pods_of_some_nodes_are_added_up_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(*nodes(200, 1))
    service = world.service(config=ON)
    for number in range(1, 201):
        await running(world, service, f"n{number}", f"p{number}")
    service.start()
    portions: list[int] = []

    def counting(view: View, terms: PreemptionTerms, names: Sequence[str]) -> Sequence[str]:
        portions.append(len(names))
        return suited(view, terms, names)

    monkeypatch.setattr(evaluator, "suited", counting)
    world.add(*gang("g", 2, priority=10))
    for pod in names("g", 2):
        await tried(world, service, pod)
    await world.settle(20.0)
    assert len(world.api.evicted) == 2
    assert max(portions) <= evaluator.CHUNK < sum(portions)
