"""Pods that are refused and wait cost next to nothing, and none is forgotten. `make bench-backlog` has the times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e.backlog import Backlog
from tests.e2e.case import Case
from tests.e2e.components import metric
from tests.e2e.ground import SCHEDULER, Ground
from tests.e2e.schedulerqueue import Queue

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]

WAITING, HOLDERS = 48, 24
SEARCHES = "dra_extender_allocation_searches_total"
FILTERED = "dra_extender_filter_results_total"


@pytest.fixture
def backlog(case: Case, ground: Ground) -> Iterator[Backlog]:
    """Pods that are refused, half of them for devices in use, half for devices that do not exist."""
    case.alone()

    async def begin() -> Backlog:
        made = Backlog(
            ground.client,
            case.name,
            device_class=case.name,
            driver=case.driver,
            scheduler=SCHEDULER,
            nodes=ground.nodes,
        )
        return await made.__aenter__()

    made = ground.run(begin())
    try:
        ground.run(made.occupy(HOLDERS))
        case.until_runs(*(f"holder-{number}" for number in range(HOLDERS)))
        ground.run(made.wait(WAITING))
        yield made
    finally:
        ground.run(made.__aexit__())


def test_refused_pods_cost_no_search_until_something_changes_and_are_all_bound_when_devices_come(
    backlog: Backlog, ground: Ground
) -> None:
    queue = Queue(ground)
    flushed = queue.flushed()
    before = ground.extender.metrics()
    ground.run(backlog.change(count=600, rate=40))
    after = ground.extender.metrics()
    refused = metric(after, FILTERED, result="refused") - metric(before, FILTERED, result="refused")
    assert refused >= WAITING, "each was asked about again"
    assert metric(after, SEARCHES) == metric(before, SEARCHES)

    async def both() -> list[float]:
        taken, _ = await asyncio.gather(backlog.pass_by(count=30, rate=3), backlog.change(count=400, rate=40))
        return taken

    assert len(ground.run(both())) == 30
    assert sum(name.startswith("passing-") for name in backlog.bound) == 30, "others are bound meanwhile"
    assert backlog.served == 0
    for _ in range(2):
        ground.run(backlog.publish(WAITING // 4))
        ground.run(backlog.free(WAITING // 4))
    assert backlog.served == WAITING
    assert queue.flushed() == flushed, "each was woken"
