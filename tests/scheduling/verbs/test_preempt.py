"""The preempt verb only ever leaves nodes out."""

from __future__ import annotations

from app.api.extender import ExtenderPreemptionArgs, MetaPod, MetaVictims, Victims
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World

TWO = MetaVictims(Pods=[MetaPod(UID="high"), MetaPod(UID="low")], NumPDBViolations=1)


async def test_a_pod_without_claims_leaves_everything_as_it_is(world: World, small: Objects) -> None:
    world.add(*small)
    given = {"n1": TWO, "unknown": MetaVictims(Pods=[])}
    answer = await world.service().extender.preempt(
        ExtenderPreemptionArgs(Pod=make_pod("p"), NodeNameToMetaVictims=given)
    )
    assert answer.NodeNameToMetaVictims == given


async def test_a_node_where_the_claims_do_not_fit_now_is_left_out(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c", count=2), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    service = world.service()
    assert await service.bind(world.api.pod("q"), "n1") == ""
    answer = await service.extender.preempt(
        ExtenderPreemptionArgs(Pod=world.api.pod("p"), NodeNameToMetaVictims={"n1": TWO, "n2": TWO, "unknown": TWO})
    )
    assert answer.NodeNameToMetaVictims == {"n2": TWO}


async def test_full_victims_become_uids_and_empty_lists_are_fine(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c"))
    victims = {"n1": Victims(Pods=[make_pod("v")], NumPDBViolations=2), "n2": Victims(Pods=None)}
    answer = await world.service().extender.preempt(
        ExtenderPreemptionArgs(Pod=make_pod("p", "c"), NodeNameToVictims=victims)
    )
    assert answer.NodeNameToMetaVictims == {
        "n1": MetaVictims(Pods=[MetaPod(UID="uid-v")], NumPDBViolations=2),
        "n2": MetaVictims(Pods=[]),
    }


async def test_claims_that_cannot_be_decided_on_keep_no_node(world: World, small: Objects) -> None:
    world.add(*small)
    answer = await world.service().extender.preempt(
        ExtenderPreemptionArgs(Pod=make_pod("p", "missing"), NodeNameToMetaVictims={"n1": TWO})
    )
    assert answer.NodeNameToMetaVictims == {}
