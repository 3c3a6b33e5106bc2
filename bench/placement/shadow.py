"""Compares what shadow mode predicts of a policy with what the policy does: are as many GPUs in use?

In one cluster the model of kube-scheduler places the pods with `first-fit`, and the record of shadow mode has the
policy. In the other one the same pods come in the same order, and the policy places them, as `bench.placement` measures
it. Pods do not end, so a refused pod that waits is as good as one that is deleted. Counts and ratios only.

    python -m bench.placement.shadow [--trace DIR]

Writes bench/placement/shadow.json and its table in docs/placement.md. Exit status 1 when a prediction is off by more
than a point.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bench.document import write_section
from bench.placement import trace
from bench.placement.report import DOCUMENT, SHOWN
from bench.placement.run import KUBE, STRATEGIES, Site, play
from bench.placement.trace import Job, Workload
from dra_extender.insight.shadow import devices_of
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service.shadow import ShadowRecord

RESULTS: Final = Path(__file__).with_name("shadow.json")
MOST_POINTS: Final = 1.0
ARRIVALS: Final = 1.3
POLICIES: Final = ("pack", "spread", "fragmentation")

Case = tuple[Path | None, str, str, int, int]
"""Folder of the trace, its pod list, policy, number of nodes (0: all), seed."""


class Use(msgspec.Struct, frozen=True):
    """`shares`: per cent of all GPUs allocated, by per cent of GPUs asked for. `devices`: per cent of all GPUs that
    have a pod at the end. `waiting`: pods with GPUs that have none at the end.
    """

    shares: dict[int, float]
    devices: float
    waiting: int

    @property
    def share(self) -> float:
        """At the end."""
        return self.shares[max(self.shares)]


class Compared(msgspec.Struct, frozen=True):
    """`now`: under the scheduler whose cluster is recorded. `apart`: measured with the policy for pods with GPUs only;
    kube-scheduler places the others.
    """

    workload: str
    policy: str
    seed: int
    nodes: int
    gpus: int
    now: Use
    predicted: Use
    measured: Use
    apart: Use

    @property
    def points(self) -> float:
        """The largest difference between prediction and measurement, from 80 % of GPUs asked for."""
        both = self.predicted.shares.keys() & self.measured.shares.keys()
        found = [abs(self.predicted.shares[each] - self.measured.shares[each]) for each in both if each >= SHOWN[0]]
        return max(*found, abs(self.predicted.devices - self.measured.devices))


class Record(ShadowRecord):
    """Shadow mode's, of which it is known how many pods its policy has placed."""

    @property
    def placed(self) -> int:
        return len(self._placed)

    async def followed(self) -> None:
        """Until it has followed all events."""
        await asyncio.sleep(0)  # the first event arrives
        while self.found.behind or not self.found.since:
            await asyncio.sleep(0)


@asynccontextmanager
async def recorded(site: Site, policy: str) -> AsyncIterator[Record]:
    record = Record(site.world.extender.view, PlacementStrategy(STRATEGIES[policy]))
    site.world.watcher = record.observe
    task = asyncio.create_task(record.run())
    try:
        await record.followed()
        yield record
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def predicted(workload: Workload, policy: str, seed: int) -> tuple[Use, Use]:
    """Under kube-scheduler, and as the report of shadow mode has it for the policy."""
    random = Random(seed)
    jobs = trace.tuned(workload, ARRIVALS, random)
    site = Site(workload, KUBE, random, keep=True)
    theirs: list[bool] = []
    async with recorded(site, policy) as record:

        async def place(job: Job) -> bool:
            before = record.placed
            theirs.append(await site.place(job) is not None)
            await record.followed()
            return record.placed > before

        shares = (await play(jobs, workload.capacity, place)).shares
        report = run_at_once(record.report(0))
    placed = iter(theirs)

    async def as_placed(job: Job) -> bool:
        return next(placed)

    now = (await play(jobs, workload.capacity, as_placed)).shares
    part = 100 * trace.WHOLE / workload.capacity
    return (
        Use(now, part * report.now.devices, report.now.waiting),
        Use(shares, part * report.packed.devices, report.packed.waiting),
    )


async def measured(workload: Workload, policy: str, seed: int, *, all_pods: bool) -> Use:
    """As `bench.placement` measures the policy."""
    random = Random(seed)
    jobs = trace.tuned(workload, ARRIVALS, random)
    site = Site(workload, policy, random, all_pods=all_pods)
    played = await play(jobs, workload.capacity, site.place)
    claims = list(site.world.extender.view.cluster.ledger.claims())
    devices = 100 * trace.WHOLE * len(devices_of(claim.allocation for claim in claims)) / workload.capacity
    return Use(played.shares, devices, sum(job.gpus > 0 for job in jobs) - len(claims))


def compare(case: Case) -> Compared:
    """One comparison, in a process of its own."""
    folder, name, policy, nodes, seed = case
    whole = trace.read(folder, name) if folder else trace.made_up(nodes or 60, 600)
    workload = trace.sampled(whole, nodes / len(whole.machines)) if nodes and folder else whole
    return asyncio.run(compared(workload, policy, seed))


async def compared(workload: Workload, policy: str, seed: int) -> Compared:
    now, shadow = await predicted(workload, policy, seed)
    return Compared(
        workload=workload.name,
        policy=policy,
        seed=seed,
        nodes=len(workload.machines),
        gpus=workload.capacity // trace.WHOLE,
        now=now,
        predicted=shadow,
        measured=await measured(workload, policy, seed, all_pods=True),
        apart=await measured(workload, policy, seed, all_pods=False),
    )


def missed(found: Sequence[Compared]) -> list[str]:
    """The predictions that are off by more than a point."""
    return [f"{each.workload}, {each.policy}: {each.points:.2f} points" for each in found if each.points > MOST_POINTS]


def table(found: Sequence[Compared]) -> str:
    lines = [
        "| workload | nodes | GPUs | kube-default | policy | predicted | measured | largest difference "
        "| GPUs with a pod | waiting | only pods with GPUs |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in found:
        both = each.predicted, each.measured
        devices = " / ".join(f"{use.devices:.2f} %" for use in both)
        waiting = " / ".join(str(use.waiting) for use in both)
        lines.append(
            f"| {each.workload} | {each.nodes} | {each.gpus} | {each.now.share:.2f} % | {each.policy} "
            f"| {each.predicted.share:.2f} % | {each.measured.share:.2f} % | {each.points:.2f} "
            f"| {devices} | {waiting} | {each.apart.share:.2f} % |"
        )
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement.shadow")
    parser.add_argument("--trace", type=Path, help="folder with openb_*.csv; without it the workload is made up")
    parser.add_argument("--lists", nargs="*", default=["default", "multigpu50"], help="pod lists of the trace")
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--nodes", type=int, default=0, help="a part of the nodes, drawn once; 0: all")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the files alone")
    return parser.parse_args()


def cases(options: argparse.Namespace) -> Iterator[Case]:
    for name in options.lists if options.trace else ("made up",):
        for policy in options.policies:
            yield options.trace, name, policy, options.nodes, options.seed


def main() -> int:
    options = parsed()
    found: list[Compared] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for each in pool.map(compare, cases(options)):
            found.append(each)
            print(f"{each.workload}, {each.policy}: {each.points:.2f} points apart", flush=True)
            if not options.dry_run:
                RESULTS.write_bytes(msgspec.json.encode(found) + b"\n")
                write_section("shadow", table(found), DOCUMENT)
    print(table(found))
    problems = missed(found)
    print("\n".join(problems) or f"All predictions are within {MOST_POINTS:g} point.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
