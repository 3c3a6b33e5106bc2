"""Whose devices and claims are kept from whom."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.resource import AllocationResult
from dra_extender.scheduling.nomination.nominations import PREEMPTING, Nomination, Nominations, is_preempting
from tests.support.counting import calls
from tests.support.scheduling.nominating import FOUR, ON, alive, full, tried, until_bound, wanting
from tests.support.simulation.api import EXTENDED
from tests.support.simulation.objects import Objects, make_claim, make_class, make_pod
from tests.support.simulation.strategy import with_pod_status
from tests.support.simulation.world import World


def nomination(name: str, priority: int) -> Nomination:
    plans = ((make_claim(f"claim-{name}"), AllocationResult()),)
    return Nomination(pod=make_pod(name, priority=priority), node="n1", victims=("v",), plans=plans, until=1.0)


def kept_from(nominations: Nominations, name: str, priority: int) -> list[str]:
    return [claim.metadata.name for claim, _ in nominations.kept_from(make_pod(name, priority=priority))]


@pytest.mark.parametrize(
    ("asks", "priority", "kept"),
    [
        ("other", 5, ["claim-p"]),
        ("other", 10, ["claim-p"]),
        ("other", 11, []),
        ("p", 10, []),
    ],
    ids=["lower", "equal", "higher", "itself"],
)
def test_devices_are_kept_from_all_others_but_those_of_higher_priority(
    asks: str, priority: int, kept: list[str]
) -> None:
    nominations = Nominations()
    nominations.put(nomination("p", 10))
    assert kept_from(nominations, asks, priority) == kept


def test_nothing_is_kept_any_more_when_a_nomination_ends() -> None:
    nominations = Nominations()
    nominations.put(nomination("p", 10))
    nominations.put(nomination("q", 10))
    nominations.drop("uid-p")
    assert (len(nominations), kept_from(nominations, "other", 0)) == (1, ["claim-q"])
    nominations.clear()
    assert kept_from(nominations, "other", 0) == []


def test_a_nomination_that_is_replaced_promises_what_the_new_one_does() -> None:
    nominations, asking = Nominations(), make_pod("other", priority=10)
    before, now = make_claim("claim-p"), make_claim("claim-q")
    nominations.put(nomination("p", 10))
    assert nominations.promises(before, asking)
    nominations.put(msgspec.structs.replace(nomination("p", 10), plans=((now, AllocationResult()),)))
    assert [nominations.promises(claim, asking) for claim in (before, now)] == [False, True]
    nominations.drop("uid-p")
    assert not nominations.promises(now, asking)


def test_whether_a_claim_is_promised_costs_the_same_however_many_nominations_there_are() -> None:
    def cost(number: int) -> int:
        nominations, asking = Nominations(), make_pod("other")
        for index in range(number):
            nominations.put(nomination(f"p{index}", 10))
        return calls(lambda: nominations.promises(make_claim("none"), asking))

    assert cost(100) == cost(1)


async def test_only_pods_of_higher_priority_get_a_claim_of_the_preemptor_allocated_elsewhere(
    world: World, small: Objects
) -> None:
    """Otherwise the preemptor could not use the node for which pods were evicted."""
    service = await full(world, small, FOUR)
    for name in ("a", "b"):
        world.api.stopping[name] = 20.0
    world.add(make_claim("shared"), make_claim("own", pod="p"), make_pod("p", "shared", "own", priority=10))
    world.add(make_pod("low", "shared"), make_pod("boss", "shared", priority=11))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert sorted(world.api.evicted) == ["a", "b"]
    world.api.delete_pod("c")
    await world.settle(1.0)
    text = "resource claim default/shared is in the process of being allocated"
    answer = await service.filter(world.api.pod("low"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {text}
    assert (await service.filter(world.api.pod("boss"))).NodeNames == ["n2"]
    assert await until_bound(world, service, "p") == "n1"
    assert await until_bound(world, service, "low") == "n1"
    assert sorted(world.api.evicted) == ["a", "b"]


async def test_what_is_freed_for_an_extended_resource_is_kept_from_pods_of_lower_priority(
    world: World, small: Objects
) -> None:
    """The claim for the extended resource is created when the pod is bound."""
    service = await full(world, [make_class(resource=EXTENDED), *small[1:]], FOUR)
    containers = [{"name": "main", "resources": {"requests": {EXTENDED: "1"}}}]
    world.add(make_pod("p", priority=10, containers=containers), *wanting("low", 5))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert "a" not in alive(world)
    assert not await tried(world, service, "low")
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["a"]


def test_a_pod_has_one_nomination() -> None:
    """One that takes in a pod of another one replaces it: nothing is promised or kept for the other one any more."""
    nominations = Nominations()
    nominations.put(nomination("p", 10))
    gang = msgspec.structs.replace(nomination("q", 10), nodes={"uid-q": "n1", "uid-p": "n1"})
    nominations.put(gang)
    assert (list(nominations), kept_from(nominations, "other", 0)) == ([gang], ["claim-q"])
    nominations.drop("uid-p")
    assert (len(nominations), kept_from(nominations, "other", 0)) == (0, [])
    claim = make_claim("claim-p")
    assert not nominations.promises(claim, make_pod("other"))


def nominate_elsewhere(world: World) -> None:
    """In the moment before the next write of a pod's status, kube-scheduler nominates the pod for another node."""
    nominated = {"nominatedNodeName": "n2"}
    world.api.hooks["patch_pod_status"] = lambda: world.api.put(with_pod_status(world.api.pod("p"), nominated))


async def test_a_node_that_kube_scheduler_nominates_while_a_nomination_is_removed_stays(
    world: World, small: Objects
) -> None:
    pod = make_pod("p", "of-p", priority=10, preemptionPolicy="Never")
    nominated = {"nominatedNodeName": "n1", "conditions": [{"type": PREEMPTING, "status": "True"}]}
    service = world.service(*small, make_claim("of-p"), with_pod_status(pod, nominated), config=ON)
    nominate_elsewhere(world)
    service.start()
    await world.settle(10.0)
    pod = world.api.pod("p")
    assert (pod.status.nominated_node_name, is_preempting(pod)) == ("n2", False)
    assert service.client.calls.count("patch_pod_status") == 2


async def test_a_node_that_kube_scheduler_nominates_while_the_node_is_named_again_stays(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    world.api.stopping["a"] = 20.0
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(5.0)
    nominate_elsewhere(world)
    world.api.put(with_pod_status(world.api.pod("p"), {"nominatedNodeName": None}))
    await world.settle(5.0)
    assert "patch_pod_status" not in world.api.hooks
    assert world.api.pod("p").status.nominated_node_name == "n2"
