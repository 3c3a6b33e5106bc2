"""How many pods are nominated follows from how many are bound."""

from __future__ import annotations

import asyncio

from dra_extender.scheduling.earlynomination.queue import LEAST, MOST, UNKNOWN_RATE, BindingRate
from tests.support.simulation.virtualtime import VirtualClock


async def test_as_many_are_nominated_as_are_bound_in_three_seconds() -> None:
    clock = VirtualClock()
    horizon = BindingRate(clock)
    assert horizon.ahead(1000) == UNKNOWN_RATE
    for _ in range(300):
        horizon.bound()
        await asyncio.sleep(0.02)
    assert 145 <= horizon.ahead(1000) <= 153
    for _ in range(600):
        horizon.bound()
        await asyncio.sleep(0.002)
    assert horizon.ahead(1000) == MOST
    await asyncio.sleep(1.9)
    horizon.bound()
    await asyncio.sleep(1.9)
    assert horizon.ahead(1000) == LEAST
    await asyncio.sleep(1)
    assert horizon.ahead(1000) == UNKNOWN_RATE


async def test_where_nobody_can_tell_who_comes_next_all_are_nominated_or_hardly_anybody() -> None:
    horizon = BindingRate(VirtualClock())
    for _ in range(200):
        horizon.bound()
        await asyncio.sleep(0.02)
    assert horizon.ahead(300, missed=200.0) == 300
    assert horizon.ahead(1000, missed=200.0) == MOST
    assert horizon.ahead(1100, missed=200.0) == LEAST
    assert 145 <= horizon.ahead(1000, missed=100.0) <= 153
