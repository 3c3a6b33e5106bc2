"""A mark on a pod is a proposal: any user may have written it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.scheduling.nomination.nominations import MARK, Mark
from tests.support.scheduling.nominating import FOUR, ON, full, tried, wanting
from tests.support.simulation.objects import Objects, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World


@pytest.mark.parametrize(
    ("priority", "victim", "spec"),
    [(5, "c", {}), (50, "c", {}), (60, "idle", {}), (60, "c", {"preemptionPolicy": "Never"}), (60, "foreign", {})],
    ids=["of higher priority", "of equal priority", "without devices", "never", "of another scheduler"],
)
async def test_a_pod_that_names_victims_itself_gets_nobody_evicted_whom_it_may_not_preempt(
    world: World, small: Objects, priority: int, victim: str, spec: dict[str, Any]
) -> None:
    """Whoever may create pods may annotate them."""
    first = await full(world, small, {"a": 50, "b": 50, "c": 50, "foreign": 1})
    await first.kill()
    foreign = world.api.pod("foreign")
    world.api.put(msgspec.structs.replace(foreign, spec=msgspec.structs.replace(foreign.spec, scheduler_name="other")))
    world.add(make_pod("idle", node="n2", priority=1), *wanting("p", priority, **spec))
    mark = Mark("n2", (f"uid-{victim}",), "2100-01-01T00:00:00Z")
    world.api.put(with_metadata(world.api.pod("p"), annotations={MARK: msgspec.json.encode(mark).decode()}))
    service = world.service(config=ON)
    service.start()
    await world.settle(10.0)
    assert (world.api.evicted, len(service.extender.nominations)) == ([], 0)
    assert MARK not in world.api.pod("p").metadata.annotations


async def test_what_a_pod_says_keeps_devices_no_longer_than_a_nomination_does(world: World, small: Objects) -> None:
    world.add(*small, *wanting("p", 10), *wanting("low", 0, count=2))
    mark = Mark("n1", ("uid-unknown",), "2100-01-01T00:00:00Z")
    world.api.put(with_metadata(world.api.pod("p"), annotations={MARK: msgspec.json.encode(mark).decode()}))
    service = world.service(config=ON)
    service.start()
    await world.settle(3.0)
    assert len((await service.filter(world.api.pod("low"))).NodeNames or ()) == 1
    await world.settle(60.0)
    assert len((await service.filter(world.api.pod("low"))).NodeNames or ()) == 2


async def test_a_replica_starts_when_nobody_can_say_at_once_if_a_nomination_still_holds(
    world: World, small: Objects
) -> None:
    first = await full(world, small, FOUR)
    first.client.kill_on = "evict_pod", "before"
    world.add(*wanting("p", 10))
    assert not await tried(world, first, "p")
    await world.settle(3.0)
    await first.kill()
    second = world.service(config=msgspec.structs.replace(ON, question_work=1), workers=VirtualWorkers.none())
    second.start()
    await world.settle(10.0)
    assert (world.api.evicted, MARK in world.api.pod("p").metadata.annotations) == ([], False)
