"""One run: pods come one by one, each is tried once, and the allocated share of all GPUs is noted."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Final, NamedTuple

import msgspec

from bench.placement.fgd import FGD
from bench.placement.kubescheduler import Scheduler
from bench.placement.trace import Job, Workload, tuned, typical
from bench.placement.world import World
from dra_extender.api.core import Pod
from dra_extender.placement.placement import Ranking
from dra_extender.placement.policies import PlacementStrategy, PolicyName

KUBE: Final = "kube-default"
STRATEGIES: Final[Mapping[str, PolicyName]] = {
    KUBE: "first-fit",
    "pack": "pack",
    "spread": "spread",
    FGD.name: "pack",
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


class Placed(NamedTuple):
    """A pod and the position of its node."""

    job: Job
    pod: Pod
    node: int


async def run(workload: Workload, policy: str, seed: int, arrivals: float, *, all_pods: bool = True) -> Outcome:
    """`all_pods`: the extender chooses nodes for pods without GPUs as well."""
    random = Random(seed)
    jobs = tuned(workload, arrivals, random)
    site = Site(workload, policy, random, all_pods=all_pods)
    started = time.process_time()
    played = await play(jobs, workload.capacity, site.place)
    return Outcome(
        workload=workload.name,
        policy=policy,
        seed=seed,
        shares=played.shares,
        arrived=len(jobs),
        placed=played.placed,
        evaluations=site.world.evaluations,
        seconds=round(time.process_time() - started, 1),
    )


class Played(NamedTuple):
    """`shares`: as `Outcome` has them. `placed`: pods."""

    shares: dict[int, float]
    placed: int


async def play(jobs: Iterable[Job], capacity: int, place: Callable[[Job], Awaitable[object]]) -> Played:
    """Pods come in this order; `place` gives something true for a pod that is placed."""
    shares: dict[int, list[float]] = {}
    asked = allocated = placed = 0
    for job in jobs:
        if await place(job):
            allocated += job.demand
            placed += 1
        asked += job.demand
        shares.setdefault(round(100 * asked / capacity), []).append(100 * allocated / capacity)
    return Played({percent: sum(found) / len(found) for percent, found in shares.items()}, placed)


class Site:
    """The nodes of a workload under a policy, and what kube-scheduler knows of them. `all_pods`: the extender chooses
    nodes for pods without GPUs as well. `keep`: refused pods wait, and are not deleted.
    """

    def __init__(
        self, workload: Workload, policy: str, random: Random, *, all_pods: bool = True, keep: bool = False
    ) -> None:
        self._keep = keep
        self.world = World(workload.machines, PlacementStrategy(STRATEGIES[policy]), random)
        self._scheduler = Scheduler(workload.machines, random)
        self._policy = policy
        self._all_pods = all_pods
        if policy == FGD.name:
            self.world.placement.rankings[STRATEGIES[policy]] = Ranking(
                self._fgd(workload), self.world.learner.free_states
            )

    def _fgd(self, workload: Workload) -> FGD:
        frequencies = typical(workload.jobs)
        return FGD({self.world.shape(job): part for job, part in frequencies.items() if job.gpus})

    async def place(self, job: Job) -> Placed | None:
        """Try once to place a pod; None when it fits nowhere."""
        world, scheduler = self.world, self._scheduler
        fits = scheduler.fitting(job)
        if not fits and not self._keep:
            return None
        pod = world.arrive(job)
        if job.gpus and fits:
            fits = await world.fits(pod, fits)
        if not fits:
            if not self._keep:
                world.leave(pod)
            return None
        is_kube = self._policy == KUBE
        node = None if is_kube or not (job.gpus or self._all_pods) else await world.favourite(pod, fits)
        if node is None:
            node = scheduler.favourite(job, scheduler.sampled(fits) if is_kube else fits)
        world.bind(pod, node)
        scheduler.place(node, job)
        return Placed(job, pod, node)

    def end(self, placed: Placed) -> None:
        """The pod ends, and gives back what it has."""
        self.world.leave(placed.pod)
        self._scheduler.remove(placed.node, placed.job)
