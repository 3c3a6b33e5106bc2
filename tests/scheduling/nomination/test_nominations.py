"""Whose devices and claims are kept from whom."""

from __future__ import annotations

import pytest

from dra_extender.api.resource import AllocationResult
from dra_extender.scheduling.nomination.nominations import Nomination, Nominations
from tests.support.scheduling.nominating import FOUR, full, tried, until_bound
from tests.support.simulation.objects import Objects, make_claim, make_pod
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
