"""Who writes events about devices that two claims have."""

from __future__ import annotations

import asyncio

from dra_extender.service.service import Service
from tests.support.patience import until
from tests.support.service.world import ELECTION, StartService, World


async def found_by(service: Service) -> None:
    """The conflict is reported."""
    engine = service.replica.running
    await until(lambda: engine.audit.reported > 0)
    await asyncio.sleep(0.5)  # a wrong event would be written by then


def conflict(world: World) -> None:
    for name in ("p", "q"):
        world.claim(name)
        world.pod(name, name)
        world.allocate(name, name, world.nodes[0])


def about(world: World) -> list[str]:
    found = [each for each in world.store.list("events") if each["reason"] == "DeviceHeldTwice"]
    return sorted((each.get("regarding") or each["involvedObject"])["name"] for each in found)


async def test_the_leader_writes_them_and_a_standby_does_not(world: World, start_service: StartService) -> None:
    settings = ELECTION | {"advertise": "127.0.0.1"}
    async with (
        start_service(identity="first", **settings) as first,
        start_service(identity="second", **settings) as second,
    ):
        assert (first.replica.leading, second.replica.leading) == (True, False)
        conflict(world)
        await found_by(first)
        await found_by(second)
        await until(lambda: len(about(world)) >= 2)
        assert about(world) == ["p", "q"]


async def test_an_advisor_writes_none(world: World, start_service: StartService) -> None:
    async with start_service(mode="advisor") as service:
        conflict(world)
        await found_by(service)
    assert about(world) == []
