"""One run: pods come one by one, each is tried once, and the allocated share of all GPUs is noted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from app.placement.policies import PolicyName
from app.placement.strategy import Strategy
from bench.placement.fgd import FGD
from bench.placement.kubescheduler import Scheduler
from bench.placement.trace import Job, Workload, tuned, typical
from bench.placement.world import World

KUBE: Final = "kube-default"
STRATEGIES: Final[Mapping[str, PolicyName]] = {
    KUBE: "first-fit",
    "pack": "pack",
    "spread": "spread",
    FGD.name: "first-fit",
    "fragmentation": "fragmentation",
}
"""What is measured, and the policy that the service is set to; FGD is put in its place."""


class Outcome(msgspec.Struct, frozen=True):
    """`shares`: per cent of all GPUs allocated, by per cent of GPUs asked for so far."""

    workload: str
    policy: str
    seed: int
    shares: dict[int, float]
    arrived: int
    placed: int
    evaluations: int
    seconds: float


async def run(workload: Workload, policy: str, seed: int, arrivals: float, *, all_pods: bool = True) -> Outcome:
    """`all_pods`: the extender chooses nodes for pods without GPUs as well."""
    random = Random(seed)
    jobs = tuned(workload, arrivals, random)
    world = World(workload.machines, Strategy(STRATEGIES[policy]), random)
    if policy == FGD.name:
        world.placement.use(_fgd(world, workload))
    scheduler = Scheduler(workload.machines, random)
    started = time.process_time()
    shares: dict[int, list[float]] = {}
    asked = allocated = placed = 0
    for job in jobs:
        if await _place(world, scheduler, job, policy, all_pods=all_pods):
            allocated += job.demand
            placed += 1
        asked += job.demand
        shares.setdefault(round(100 * asked / workload.capacity), []).append(100 * allocated / workload.capacity)
    return Outcome(
        workload=workload.name,
        policy=policy,
        seed=seed,
        shares={percent: sum(found) / len(found) for percent, found in shares.items()},
        arrived=len(jobs),
        placed=placed,
        evaluations=world.placement.evaluations,
        seconds=round(time.process_time() - started, 1),
    )


def _fgd(world: World, workload: Workload) -> FGD:
    frequencies = typical(workload.jobs)
    return FGD({world.shape(job): part for job, part in frequencies.items() if job.gpus})


async def _place(world: World, scheduler: Scheduler, job: Job, policy: str, *, all_pods: bool) -> bool:
    fits = scheduler.fitting(job)
    if not fits:
        return False
    pod = world.arrive(job)
    if job.gpus:
        fits = await world.fits(pod, fits)
    if not fits:
        world.leave(pod)
        return False
    node = await world.favourite(pod, fits) if policy != KUBE and (job.gpus or all_pods) else None
    if node is None:
        node = scheduler.favourite(job, scheduler.sampled(fits) if policy == KUBE else fits)
    world.bind(pod, node)
    scheduler.place(node, job)
    return True
