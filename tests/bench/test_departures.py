"""The protocol in which pods end: what comes, what is measured, and that everything is given back."""

from __future__ import annotations

from random import Random

import pytest

from bench.placement.departures import END, LOAD, LONGEST, Meter, arrivals, run
from bench.placement.trace import Workload, made_up, sampled


@pytest.fixture
def workload() -> Workload:
    return made_up(nodes=8, pods=200)


def test_what_comes_times_how_long_it_runs_is_as_much_as_there_is(workload: Workload) -> None:
    offered = [
        sum(job.demand * seconds for _, job, seconds in arrivals(workload, Random(seed))) / (END * workload.capacity)
        for seed in range(20)
    ]
    assert sum(offered) / len(offered) == pytest.approx(LOAD, rel=0.05)
    assert all(seconds <= LONGEST for _, _, seconds in arrivals(workload, Random(0)))


def test_the_meter_gives_the_mean_of_each_step() -> None:
    meter = Meter(1000)
    meter.until(300)
    meter.allocated = 500
    meter.until(1500)
    assert meter.shares == {0: 25.0, 10: 50.0, 20: 25.0}


def test_a_part_of_the_nodes_is_the_same_each_time(workload: Workload) -> None:
    part = sampled(workload, 0.5)
    assert part.machines == sampled(workload, 0.5).machines
    assert len(part.machines) == 4
    assert part.jobs == workload.jobs


async def test_pods_come_and_go_and_the_cluster_never_has_more_than_it_has(workload: Workload) -> None:
    found = await run(sampled(workload, 0.5), "pack", 1)
    assert 0 < found.share <= 100
    assert 0 <= found.lost < found.came
    assert found.missed <= found.asked
    assert found.large_lost <= found.large
    assert len(found.shares) == END / 600
