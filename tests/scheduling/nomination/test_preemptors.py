"""Which pods become preemptors, whatever a caller of filter says about them."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.scheduling.nomination.nominations import is_preempting
from tests.support.scheduling.nominating import FOUR, full, wanting
from tests.support.simulation.objects import Objects, make_pod
from tests.support.simulation.world import World


@pytest.mark.parametrize(
    "spec", [{"schedulerName": "other"}, {"schedulingGates": [{"name": "wait"}]}], ids=["of another scheduler", "gated"]
)
async def test_no_caller_of_filter_makes_a_pod_preempt_that_is_not_scheduled(
    world: World, small: Objects, spec: dict[str, Any]
) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10, **spec))
    await world.settle(1.0)
    claimed = make_pod("p", "of-p", priority=10)
    assert not (await service.filter(claimed)).NodeNames
    await world.settle(30.0)
    assert (world.api.evicted, is_preempting(world.api.pod("p"))) == ([], False)


async def test_whoever_calls_filter_chooses_the_nodes_where_a_pending_pod_preempts(
    world: World, small: Objects
) -> None:
    """kube-scheduler offers only nodes that passed its own filters, so other nodes do not count."""
    service = await full(world, small, {"a": 0, "b": 5})
    world.add(*wanting("p", 10))
    assert not (await service.filter(world.api.pod("p"), "n1")).NodeNames
    await world.settle(5.0)
    assert world.api.evicted == ["a"]
