"""Gangs preempt: as few pods as possible are evicted, for all pods of the gang or for none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api.extender import ExtenderPreemptionArgs, MetaPod, MetaVictims
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.insight.why.diagnosis import explaining
from dra_extender.insight.why.text import fully
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.nomination.nominations import Nomination, NominationRecords, is_preempting
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED, PREEMPTION_VICTIMS, PREEMPTIONS
from dra_extender.scheduling.preemption import gangs
from dra_extender.scheduling.turns import run_at_once
from tests.support.scheduling.gangs import gang, member, names, nodes, offered
from tests.support.scheduling.nominating import ADVISE, ON, running, tried, wanting
from tests.support.simulation.objects import Objects, make_claim, make_class
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World


async def filled(world: World, objects: Objects, **pods: tuple[str, int, int]) -> Service:
    """A service with preemption on, and pods: node, priority and number of devices of each."""
    world.add(*objects)
    service = world.service(config=ON)
    for name, (node, priority, count) in pods.items():
        await running(world, service, node, name, priority, count=count)
    service.start()
    return service


async def scheduled(world: World, service: Service, pods: list[str], seconds: int = 60) -> list[str]:
    """Pod by pod, attempts after each requeue: the nodes of the pods that are bound in that time."""
    requeues = -1
    for _ in range(seconds):
        if service.client.requeues != requeues:
            requeues = service.client.requeues
            for name in pods:
                if not world.api.pod(name).spec.node_name:
                    await tried(world, service, name)
        if all(world.api.pod(name).spec.node_name for name in pods):
            break
        await world.settle(1.0)
    return [world.api.pod(name).spec.node_name for name in pods]


ONE_EACH = {f"p{number}": (f"n{1 + number // 2}", 0, 1) for number in range(6)}
"""A pod of priority 0 on each device of three nodes."""


async def test_a_gang_preempts_as_many_pods_as_it_needs(world: World) -> None:
    service = await filled(world, nodes(3, 2), **ONE_EACH)
    world.add(*gang("g", 4, priority=10))
    assert all(await scheduled(world, service, names("g", 4)))
    assert len(world.api.evicted) == 4
    assert world.api.doubles() == []
    assert (service.counted(PREEMPTIONS, "nominated"), service.counted(PREEMPTION_VICTIMS, "evicted")) == (1, 4)
    await world.settle(5.0)
    assert service.counted(NOMINATIONS_ENDED, "bound") == 1
    assert not any(is_preempting(world.api.pod(name)) for name in names("g", 4))


async def test_every_pod_of_the_gang_is_nominated_before_the_first_eviction(world: World) -> None:
    service = await filled(world, nodes(3, 2), **ONE_EACH)
    world.api.stopping.update(dict.fromkeys(ONE_EACH, 20.0))
    world.add(*gang("g", 3, priority=10), *wanting("low", 0))
    await offered(service, world, *names("g", 3))
    await world.settle(3.0)
    pods = [world.api.pod(name) for name in names("g", 3)]
    assert all(is_preempting(pod) and pod.status.nominated_node_name for pod in pods)
    assert len(service.extender.nominations) == 3
    log = [operation for operation, _ in world.api.log]
    assert log.count("patch_pod_status") >= 3
    assert log.index("evict") > [at for at, each in enumerate(log) if each == "patch_pod_status"][2]
    told = [note for reason, note in service.client.events if reason == "Preempting"]
    assert len(told) == 3
    assert not await tried(world, service, "low")
    await world.settle(20.0)
    assert not await tried(world, service, "low")
    assert all(await scheduled(world, service, names("g", 3)))


@pytest.mark.parametrize("extended", [False, True])
async def test_a_gang_keeps_what_it_preempted_while_its_pods_have_a_plan_and_no_node(
    extended: bool, world: World
) -> None:
    """Its own plan does not count as devices that others get."""
    gpu = make_class(resource="example.com/gpu")
    service = await filled(world, [*nodes(3, 2), gpu], **ONE_EACH)
    containers = [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]
    pods = [member(name, size=6, priority=10, containers=containers) for name in names("g", 6)]
    world.add(*(pods if extended else gang("g", 6, priority=10)))
    await offered(service, world, "g-0")
    await world.settle(4.0)
    assert len(world.api.evicted) == 6
    assert any(await offered(service, world, "g-0"))
    await world.settle(10.0)
    assert service.counted(NOMINATIONS_ENDED, "lost") == 0
    assert all(is_preempting(world.api.pod(name)) for name in names("g", 6))


async def test_no_pod_gets_the_node_of_a_pod_of_its_gang_that_is_gone(world: World) -> None:
    world.add(*nodes(2, 1), *gang("g", 2))
    service = world.service(config=ON)
    service.start()
    await world.settle(1.0)
    pod, places = world.api.pod("g-0"), {"uid-g-0": "n1", "uid-g-1": "n2"}
    world.api.delete_pod("g-1")
    await world.settle(1.0)
    nomination = Nomination(pod=pod, node="n1", nodes=places, victims=(), plans=(), until=60.0)
    await NominationRecords(service.extender.view, service.client).write(nomination)
    assert world.api.pod("g-0").status.nominated_node_name == "n1"


async def test_a_gang_that_would_not_fit_evicts_no_pod(world: World) -> None:
    service = await filled(world, nodes(3, 2), **ONE_EACH)
    world.add(*gang("g", 7, priority=10))
    await offered(service, world, *names("g", 7))
    await world.settle(10.0)
    assert world.api.evicted == []
    assert service.counted(PREEMPTIONS, "hopeless") >= 1


async def test_one_large_pod_goes_before_many_small_ones(world: World) -> None:
    few = {"large": ("n1", 0, 2), "a": ("n2", 0, 1), "b": ("n2", 0, 1)}
    service = await filled(world, nodes(2, 2), **few)
    world.add(*gang("g", 2, priority=10))
    assert all(await scheduled(world, service, names("g", 2)))
    assert world.api.evicted == ["large"]


async def test_pods_of_low_priority_go_even_if_they_are_more(world: World) -> None:
    few = {"large": ("n1", 5, 2), "a": ("n2", 0, 1), "b": ("n2", 0, 1)}
    service = await filled(world, nodes(2, 2), **few)
    world.add(*gang("g", 2, priority=10))
    assert all(await scheduled(world, service, names("g", 2)))
    assert sorted(world.api.evicted) == ["a", "b"]


async def test_free_devices_are_used_before_pods_are_evicted(world: World) -> None:
    service = await filled(world, nodes(2, 2), a=("n1", 0, 1), b=("n2", 0, 1))
    world.add(*gang("g", 3, priority=10))
    assert all(await scheduled(world, service, names("g", 3)))
    assert len(world.api.evicted) == 1


async def test_another_gang_is_evicted_as_a_whole(world: World) -> None:
    world.add(*nodes(2, 2), *gang("low", 4))
    service = world.service(config=ON)
    assert all(await scheduled(world, service, names("low", 4), 1))
    service.start()
    world.add(*gang("g", 2, priority=10))
    assert all(await scheduled(world, service, names("g", 2)))
    assert sorted(world.api.evicted) == names("low", 4)


@pytest.mark.parametrize("more", [{"priority": 10, "preemptionPolicy": "Never"}, {"priority": 0}])
async def test_a_gang_that_may_not_preempt_waits(world: World, more: dict[str, Any]) -> None:
    service = await filled(world, nodes(3, 2), **ONE_EACH)
    world.add(*gang("g", 2, **more))
    await offered(service, world, *names("g", 2))
    await world.settle(10.0)
    assert world.api.evicted == []


async def test_advice_names_the_victims_of_a_gang(world: World) -> None:
    world.add(*nodes(1, 2))
    service = world.service(config=ADVISE)
    for name in ("a", "b"):
        await running(world, service, "n1", name)
    service.start()
    world.add(*gang("g", 2, priority=10))
    await offered(service, world, *names("g", 2))
    await world.settle(5.0)
    told = [note for reason, note in service.client.events if reason == "WouldPreempt"]
    assert len(told) == 1
    assert told[0].startswith("would preempt pods default/a, default/b on node n1 for devices ")
    assert world.api.evicted == []


async def test_advice_names_the_nodes_of_the_victims_only(world: World) -> None:
    world.add(*nodes(2, 1))
    service = world.service(config=ADVISE)
    await running(world, service, "n2", "victim")
    service.start()
    world.add(*gang("g", 2, priority=10))
    await offered(service, world, *names("g", 2))
    await world.settle(5.0)
    (told,) = [note for reason, note in service.client.events if reason == "WouldPreempt"]
    assert told.startswith("would preempt pod default/victim on node n2 for device ")


async def test_an_explanation_names_the_victims_of_a_gang_and_then_says_that_it_waits(world: World) -> None:
    service = await filled(world, nodes(1, 2), a=("n1", 0, 1), b=("n1", 0, 1))
    world.api.stopping |= {"a": 20.0, "b": 20.0}
    world.add(*gang("g", 2, priority=10), *wanting("single", 10))
    await world.settle(0.1)

    def explained(name: str) -> str:
        pod = world.api.pod(name)
        steps = explaining(service.extender.view, pod, None, service.extender.terms)
        return fully(run_at_once(steps), width=500).splitlines()[-1]

    assert explained("g-1").startswith("would preempt pods default/a, default/b on node n1 for devices ")
    await offered(service, world, *names("g", 2))
    await world.settle(3.0)
    assert explained("g-1") == "would preempt no pod: the gang waits for pods that it has preempted to terminate"


@pytest.mark.parametrize(("size", "evicted"), [(2, 2), (3, 0)])
async def test_victims_are_looked_for_among_so_many_pods_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch, size: int, evicted: int
) -> None:
    monkeypatch.setattr(gangs, "VICTIMS_OF_GANG", 2)
    service = await filled(world, nodes(3, 2), **ONE_EACH)
    world.add(*gang("g", size, priority=10))
    await offered(service, world, *names("g", size))
    await world.settle(10.0)
    assert len(world.api.evicted) == evicted


async def test_a_budget_that_is_used_up_keeps_the_gang_waiting(world: World) -> None:
    service = await filled(world, nodes(1, 2), a=("n1", 0, 1), b=("n1", 0, 1))
    world.api.protected |= {"b"}
    world.add(*gang("g", 2, priority=10))
    await offered(service, world, *names("g", 2))
    await world.settle(10.0)
    assert world.api.evicted == []
    assert any(reason == "PreemptionForbidden" for reason, _ in service.client.events)
    world.api.protected.clear()
    await world.settle(60.0)
    assert all(await scheduled(world, service, names("g", 2)))


async def test_when_a_pod_of_the_gang_is_deleted_the_devices_are_free_for_others(world: World) -> None:
    service = await filled(world, nodes(3, 2), **ONE_EACH)
    world.api.stopping.update(dict.fromkeys(ONE_EACH, 10.0))
    world.add(*gang("g", 3, priority=10), *wanting("low", 0))
    await offered(service, world, *names("g", 3))
    await world.settle(3.0)
    world.api.delete_pod("g-1")
    await world.settle(20.0)
    assert service.counted(NOMINATIONS_ENDED, "gone") == 1
    assert await tried(world, service, "low")


async def test_a_gang_that_loses_the_devices_to_a_pod_of_higher_priority_preempts_again(world: World) -> None:
    service = await filled(world, nodes(2, 1), a=("n1", 0, 1), b=("n2", 20, 1))
    world.add(*nodes(2, 1), *gang("g", 1, priority=10), *wanting("boss", 15))
    await offered(service, world, "g-0")
    await world.settle(3.0)
    assert world.api.evicted == ["a"]
    assert await tried(world, service, "boss") == "n1"
    await world.settle(20.0)
    assert service.counted(NOMINATIONS_ENDED, "lost") == 1


async def test_the_next_leader_keeps_what_was_freed_for_a_gang(world: World) -> None:
    first = await filled(world, nodes(2, 2), **{name: pod for name, pod in ONE_EACH.items() if name < "p4"})
    world.api.stopping.update(dict.fromkeys(ONE_EACH, 20.0))
    world.add(*gang("g", 3, priority=10), *wanting("low", 0))
    await offered(first, world, *names("g", 3))
    await world.settle(3.0)
    await first.kill()
    assert len(world.api.evicted) == 3
    second = world.service(config=ON)
    second.start()
    await world.settle(1.0)
    assert len(second.extender.nominations) == 3
    await world.settle(25.0)
    assert not await tried(world, second, "low")
    assert all(await scheduled(world, second, names("g", 3)))
    assert len(world.api.evicted) == 3


async def test_a_gang_that_is_planned_in_another_way_than_it_was_nominated_keeps_its_plan(world: World) -> None:
    """The plan of the gang counts, not the nomination, for claims that both have."""
    service = await filled(world, nodes(2, 1), a=("n1", 0, 1), b=("n2", 0, 1))
    world.add(*gang("g", 1, priority=10), make_claim("c"), member("equal", "c", gang="h", size=1, priority=10))
    world.add(*wanting("single", 10))
    await offered(service, world, "g-0")
    await world.settle(3.0)
    (victim,) = world.api.evicted
    other = {"a": "b", "b": "a"}[victim]
    world.api.delete_pod(other)
    await world.settle(1.0)
    elsewhere = {"a": "n2", "b": "n1"}[victim]
    assert (await service.filter(world.api.pod("g-0"), elsewhere)).NodeNames == [elsewhere]
    for other_pod in ("equal", "single"):
        assert elsewhere not in (await service.filter(world.api.pod(other_pod))).NodeNames
    await world.settle(GangPlans.SECONDS + 60.0)
    assert not service.extender.nominations


@pytest.mark.parametrize(("size", "answer"), [(1, ["a"]), (2, ["a", "b"]), (3, None)])
async def test_the_verb_adds_the_victims_without_which_the_gang_does_not_fit(
    world: World, size: int, answer: list[str] | None
) -> None:
    service = await filled(world, nodes(1, 2), a=("n1", 0, 1), b=("n1", 0, 1))
    world.add(*gang("g", size, priority=10))
    await world.settle(0.1)
    proposed = {"n1": MetaVictims(Pods=[MetaPod(UID="uid-a")])}
    args = ExtenderPreemptionArgs(Pod=world.api.pod("g-0"), NodeNameToMetaVictims=proposed)
    found = (await service.extender.preempt(args)).NodeNameToMetaVictims or {}
    expected = {"n1": answer} if answer is not None else {}
    assert {node: [pod.UID.removeprefix("uid-") for pod in each.Pods or ()] for node, each in found.items()} == expected
    off = world.service(config=msgspec.structs.replace(ON, preemption="off"))
    assert (await off.extender.preempt(args)).NodeNameToMetaVictims == {}


async def test_a_nominated_pod_that_joins_another_gang_has_one_nomination(world: World) -> None:
    """Its user changes the annotation before the pod is bound."""
    service = await filled(world, nodes(2, 2), x=("n1", 1, 2), y=("n2", 2, 2))
    world.add(*gang("h", 2, existing=1, priority=10))
    assert not await tried(world, service, "h-0")
    await world.settle(52.0)  # preemption for it is evaluated again some seconds later
    world.add(*gang("g", 2, priority=10))
    assert not await tried(world, service, "g-0")
    assert not await tried(world, service, "g-1")
    await world.settle(2.0)
    (nomination,) = service.extender.nominations
    first = nomination.pod.metadata.name
    world.api.put(with_metadata(world.api.pod(first), annotations={GANG: "h", GANG_SIZE: "2"}))
    for _ in range(90):
        await world.settle(1.0)
        nominations = service.extender.nominations
        assert len(nominations) == sum(len(each.by_pod) for each in nominations)
    for name in ("g-0", "g-1", "h-0"):
        world.api.delete_pod(name)
    await world.settle(10.0)
    assert (list(service.extender.nominations), len(service.extender.nominations)) == ([], 0)
