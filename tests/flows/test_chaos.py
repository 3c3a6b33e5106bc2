"""Everything at once: faults of every kind, crashes, pods that come and go. The invariants hold at every look."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from embedded_cluster import RequestFault
from tests.support.flows.flow import Flow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Make = Callable[..., dict[str, Any]]

EXTENDER = "dra-extender*"


def trouble(chance: random.Random) -> list[RequestFault]:
    """Every write of the service may be refused, lost before or after it took effect, or late."""
    return [
        RequestFault(verb="patch", resource="resourceclaims*", user_agent=EXTENDER, status=409, probability=0.05),
        RequestFault(verb="patch", resource="resourceclaims*", user_agent=EXTENDER, status=500, probability=0.05),
        RequestFault(
            verb="patch", resource="resourceclaims*", user_agent=EXTENDER, status=500, after=True, probability=0.05
        ),
        RequestFault(
            verb="patch", resource="resourceclaims*", user_agent=EXTENDER, drop=True, after=True, probability=0.05
        ),
        RequestFault(verb="create", resource="pods/binding", user_agent=EXTENDER, drop=True, probability=0.05),
        RequestFault(
            verb="create", resource="pods/binding", user_agent=EXTENDER, drop=True, after=True, probability=0.1
        ),
        RequestFault(verb="create", resource="pods/binding", user_agent=EXTENDER, status=429, probability=0.05),
        RequestFault(verb="patch", resource="*", latency=chance.uniform(0.001, 0.05), probability=0.3),
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_device_is_given_twice_whatever_happens(flow: Flow, claim: Make, pod: Make, seed: int) -> None:
    cluster, chance = flow.cluster, random.Random(seed)
    wrong: list[str] = []

    async def look() -> None:
        while True:
            wrong.extend(flow.wrong())
            await asyncio.sleep(0.03)

    looking = asyncio.create_task(look())
    for fault in trouble(chance):
        cluster.faults.add(fault)
    cluster.faults.lag(chance.uniform(0.0, 0.1), "resourceclaims")
    cluster.faults.repeat_events(0.1)
    await cluster.apply([claim("one", template=True), *(claim(f"shared-{n}") for n in range(4))])
    alive: set[str] = set()
    for number in range(60):
        name = f"p{number}"
        shared = {"gpu": f"shared-{chance.randrange(4)}"} if chance.random() < 0.3 else None
        await cluster.apply([pod(name, claims=shared, templates=None if shared else {"gpu": "one"})])
        alive.add(name)
        if chance.random() < 0.5 and len(alive) > 5:
            gone = chance.choice(sorted(alive))
            alive.discard(gone)
            await cluster.delete("pods", gone, "default")
        if number in (20, 40):
            (cluster.faults.cut_watches if chance.random() < 0.5 else cluster.faults.expire_watches)()
            await flow.kill()
            await flow.start()
        await asyncio.sleep(chance.uniform(0.0, 0.05))
    cluster.faults.clear()
    await cluster.wait_until(lambda: cluster.running("default", *alive), what="every pod runs once the trouble is over")
    looking.cancel()
    assert sorted(set(wrong)) == []
