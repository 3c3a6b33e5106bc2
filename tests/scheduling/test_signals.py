"""Waiting for state to change."""

from __future__ import annotations

import asyncio

import pytest

from dra_extender.scheduling.waiting import Signals
from tests.support.simulation.world import World


async def test_a_condition_that_holds_is_not_waited_for(world: World) -> None:
    assert await Signals().until(lambda: True, ["k"], 0.0)
    assert world.clock.monotonic() == 0.0


async def test_only_a_notification_makes_it_look_again(world: World) -> None:
    signals, looked = Signals(), []

    def condition() -> bool:
        looked.append(world.clock.monotonic())
        return len(looked) == 3

    wait = asyncio.create_task(signals.until(condition, ["a", "b"], 100.0))
    await world.settle(1.0)
    signals.notify("other")
    await world.settle(1.0)
    signals.notify("b")
    await world.settle(1.0)
    signals.notify("a")
    assert await wait
    assert looked == [0.0, 2.0, 3.0]


async def test_time_ends_the_wait(world: World) -> None:
    assert not await Signals().until(lambda: False, ["k"], 5.0)
    assert world.clock.monotonic() == 5.0


async def test_what_the_condition_raises_is_passed_on_and_nothing_is_left(world: World) -> None:
    signals = Signals()
    fail = False

    def condition() -> bool:
        if fail:
            raise ValueError("over")
        return False

    wait = asyncio.create_task(signals.until(condition, ["k"], 5.0))
    await world.settle(1.0)
    fail = True
    signals.notify("k")
    with pytest.raises(ValueError, match="over"):
        await wait
    assert len(signals._waiting) == 0
