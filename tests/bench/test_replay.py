"""The same pods on the embedded cluster, once with each policy: everything between them is HTTP."""

from __future__ import annotations

import pytest

from bench.arena import NAMESPACE
from bench.placement.replay import SCHEDULER, embedded
from bench.placement.scene import Ended, Scene
from bench.placement.trace import Job, Machine
from bench.placement.world import CLASS
from dra_extender.placement.policies import PolicyName

pytestmark = pytest.mark.slow

MACHINES = [Machine(f"node-{number}", 64_000, 256 * 1024, 4, "G2") for number in range(4)]
GPUS = (4, 1, 1, 2, 1, 4, 1, 1, 2, 4)
"""GPUs of the pods, in order: 21 in all, where the cluster has 16."""


async def played(policy: PolicyName) -> Ended:
    async with embedded(MACHINES) as client:
        jobs = [Job(1_000, 1_024, gpus, 1_000) for gpus in GPUS]
        return await Scene(client, NAMESPACE, SCHEDULER, policy, CLASS).play(jobs)


async def test_fragmentation_places_more_gpus_than_first_fit() -> None:
    first = await played("first-fit")
    best = await played("fragmentation")
    assert (first.asked, first.arrived) == (best.asked, best.arrived) == (21_000, len(GPUS))
    assert first.allocated < best.allocated
    assert best.allocated == 15_000, "all but one GPU, as the last two pods want more"
