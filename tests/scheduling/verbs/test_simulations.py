"""Simulations and calls of filter at the same time: no call gets another answer, or waits for more than two turns."""

from __future__ import annotations

import asyncio
import json

import pytest

from dra_extender.insight.whatif.simulation import request_of, simulation
from dra_extender.scheduling.turns import run
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World

CALLS = 1_000


@pytest.mark.slow
async def test_no_call_of_filter_waits_for_more_than_two_turns_of_simulations(world: World, small: Objects) -> None:
    first = make_claim("held", count=2), make_pod("first", "held")
    service = world.service(*small, *first, make_claim("c"), make_pod("p", "c"))
    assert await service.bind(world.api.pod("first"), "n1") == ""
    await world.settle()
    alone, version = await service.filter(world.api.pod("p")), service.extender.view.ledger.newest
    exactly = {"deviceClassName": "gpu", "count": 1}
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": spec}
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    pod = {"metadata": {"name": "q"}, "spec": {"resourceClaims": claims, "schedulerName": "dra-scheduler"}}
    body = {"pod": pod, "objects": [template], "count": 3, "newNodes": [{"like": "n1", "count": 2}]}
    request, turns, delays = request_of(json.dumps(body).encode()), 0, list[int]()

    def turn() -> None:
        nonlocal turns
        turns += 1

    async def filtered() -> None:
        asked = turns
        await asyncio.sleep(0)  # the request arrives with the next events of the loop
        answer = await service.filter(world.api.pod("p"))
        delays.append(turns - asked)
        assert (answer.NodeNames, answer.FailedAndUnresolvableNodes) == (
            alone.NodeNames,
            alone.FailedAndUnresolvableNodes,
        )

    async def simulated() -> None:
        for _ in range(CALLS):
            found = await run(simulation(service.extender.view, request), turn)
            assert (found.fits_on[-1], found.least) == (3, 1)

    work = asyncio.create_task(simulated())
    while not work.done():
        await filtered()
    await work
    assert len(delays) > CALLS
    assert max(delays) <= 2
    assert service.extender.view.ledger.newest == version
