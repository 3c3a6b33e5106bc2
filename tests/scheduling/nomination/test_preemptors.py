"""Which pods become preemptors, whatever a caller of filter says about them, and when their evaluation ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.devices.pods import Pods
from dra_extender.scheduling.nomination.nominations import is_preempting
from dra_extender.scheduling.nomination.preemptors import Preemptors
from dra_extender.scheduling.outcomes import PREEMPTIONS
from tests.support.scheduling.nominating import FOUR, ON, full, until_bound, wanting
from tests.support.simulation.objects import Objects, make_pod
from tests.support.simulation.workers import VirtualWorkers
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


async def test_an_evaluation_that_needs_many_calls_comes_to_its_end(world: World, small: Objects) -> None:
    narrow = msgspec.structs.replace(ON, turn_work=40, question_work=40, call_work=40, worker_claim_seconds=1e9)
    service = await full(world, small, FOUR, narrow, VirtualWorkers())
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["a"]
    assert service.counted(PREEMPTIONS, "waiting") > 1


async def test_different_lists_of_nodes_count_by_their_names(world: World) -> None:
    known = Preemptors(world.clock, ON, most_nodes=100)
    for pod in range(20):
        known.put(f"p{pod}", [f"n{pod // 2}-{index}" for index in range(30)], 1)
    assert [preemptor.uid for preemptor in known.due(Pods())] == [f"p{pod}" for pod in (14, 15, 16, 17, 18, 19)]
