"""Pods that wait are told why, once per reason, by somebody who is in nobody's way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.api.core import Pod
from app.api.resource import ResourceClaim
from app.scheduling.diagnosis.note import LONGEST
from app.service.diagnoses import AGAIN, Diagnoses
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World

NINE = "claim c: 9 devices asked for, a node has at most 2; count <= 2 fits 2 nodes"


class Told:
    """Events in the order in which they were reported."""

    def __init__(self, service: Service) -> None:
        self.now = 0.0
        self.events: list[tuple[str, str, str]] = []
        extender = service.extender
        self.diagnoses = Diagnoses(extender.view, lambda: extender.wakeups.pods, self._report, clock=lambda: self.now)

    def _report(self, about: Pod | ResourceClaim, reason: str, note: str) -> None:
        assert len(note) <= LONGEST
        self.events.append((f"{type(about).__name__} {about.metadata.name}", reason, note))


@pytest.fixture
async def service(world: World) -> AsyncIterator[Service]:
    world.add(make_class(), make_node("n1"), make_node("n2"))
    world.add(make_slice("n1", ["a", "b"]), make_slice("n2", ["a", "b"]))
    made = world.service()
    await world.settle()
    yield made


async def refused(world: World, service: Service, count: int) -> Told:
    world.add(make_claim("c", count=count), make_pod("p", "c"))
    await world.settle()
    assert not (await service.filter(world.api.pod("p"))).NodeNames
    return Told(service)


async def test_the_pod_and_the_claim_to_blame_are_told_the_rule_and_the_remedy(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    assert await told.diagnoses.look() is not None
    assert told.events == [("Pod p", "DevicesUnavailable", NINE), ("ResourceClaim c", "DevicesUnavailable", NINE)]


async def test_a_pod_that_was_refused_once_is_diagnosed_once(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    assert await told.diagnoses.look() is not None
    assert await told.diagnoses.look() is None


async def test_the_same_reason_is_not_told_again_after_another_attempt(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    await told.diagnoses.look()
    world.add(make_node("n3"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    told.now = 2 * AGAIN
    assert await told.diagnoses.look() is not None
    assert len(told.events) == 2


async def test_another_reason_is_told_at_once(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    await told.diagnoses.look()
    world.api.drop(world.api.claim("c"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    world.add(make_node("n3"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    await told.diagnoses.look()
    assert told.events[2:] == [("Pod p", "ClaimMissing", "claim default/c does not exist")]


async def test_a_pod_that_is_gone_meanwhile_is_told_nothing(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    world.api.drop(world.api.pod("p"))
    await world.settle()
    assert await told.diagnoses.look() is None
    assert told.events == []
