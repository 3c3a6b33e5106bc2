"""How many pods are nominated follows from how many are bound."""

from __future__ import annotations

import asyncio

from dra_extender.scheduling.earlynomination.queue import LEAST, MOST, UNKNOWN_RATE, BindingRate
from tests.support.simulation.virtualtime import VirtualClock


async def test_as_many_are_nominated_as_are_bound_in_three_seconds() -> None:
    clock = VirtualClock()
    horizon = BindingRate(clock)
    assert horizon.ahead() == UNKNOWN_RATE
    for _ in range(300):
        horizon.bound()
        await asyncio.sleep(0.02)
    assert 145 <= horizon.ahead() <= 153
    for _ in range(600):
        horizon.bound()
        await asyncio.sleep(0.002)
    assert horizon.ahead() == MOST
    await asyncio.sleep(1.9)
    horizon.bound()
    await asyncio.sleep(1.9)
    assert horizon.ahead() == LEAST
    await asyncio.sleep(1)
    assert horizon.ahead() == UNKNOWN_RATE
