"""A question has no effect: nobody is woken by it, nothing is forgotten or remembered, whatever is under way."""

from __future__ import annotations

import asyncio

from dra_extender.insight.why.text import fully
from tests.support.questions import diagnose
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import Service, World

NODES = ["n1", "n2"]


async def during_a_bind(world: World, small: Objects) -> tuple[Service, asyncio.Task[str]]:
    """A service in the middle of binding `p`; `q` shares its claim, `big` fits nowhere and was refused."""
    world.add(*small, make_claim("c", pod="p"), make_claim("huge", count=9))
    service = world.service(make_pod("p", "c"), make_pod("q", "c"), make_pod("big", "huge"), lag=2.0)
    service.start()
    await world.settle(10.0)
    assert (await service.filter(world.api.pod("big"))).NodeNames == []
    await world.settle(5.0)
    service.client.requeues = 0
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(1.0)
    assert service.extender.view.binding == {"uid-p": "n1"}
    return service, bind


def explain(service: Service, pod: str) -> str:
    found = service.extender.view.pods.named("default", pod)
    assert found is not None
    return fully(diagnose(service.extender.view, found, NODES))


async def test_explaining_a_pod_during_a_bind_rings_no_bell(world: World, small: Objects) -> None:
    service, bind = await during_a_bind(world, small)
    generation = service.extender.requeue.revision
    for pod in ("p", "q", "big"):
        assert explain(service, pod)
    assert await bind == ""
    await world.settle(10.0)
    assert service.extender.requeue.revision == generation
    assert service.client.requeues == 0


async def test_a_claim_in_flight_is_explained_and_not_waited_for(world: World, pending: Objects) -> None:
    service = world.service(*pending, make_pod("q", "c"))
    service.start()
    await world.settle(5.0)
    claim = service.cluster.ledger.by_uid("uid-c")
    assert claim is not None
    decided = service.decisions.plan([claim], "n1")
    hold = service.cluster.ledger.hold(claim, decided.allocations[0], owner="uid-p")  # type: ignore[union-attr]
    assert "claim c is being allocated" in explain(service, "q")
    generation = service.extender.requeue.revision
    service.extender.requeue.ended("uid-c")
    assert service.extender.requeue.revision == generation
    assert (await service.filter(world.api.pod("q"))).NodeNames == []
    service.extender.requeue.ended("uid-c")
    assert service.extender.requeue.revision == generation + 1
    service.cluster.ledger.release(hold)


async def test_explaining_leaves_no_plan_and_no_hold_behind(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    service.start()
    await world.settle(5.0)
    calls = list(service.client.calls)
    assert explain(service, "p").startswith("Pod default/p fits 2 of 2 nodes: n1, n2.")
    await world.settle(60.0)
    assert service.client.calls == calls
    assert len(service.extender.tentative_plans.all()) == 0
    assert service.extender.view.ledger.holds() == ()
