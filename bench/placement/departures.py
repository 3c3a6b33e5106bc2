"""Pods come and go: how full a cluster stays when more is asked for than there is.

The protocol: a part of the nodes of a workload, drawn once; pods drawn with replacement from its list by the seed, that
come at random times (a Poisson process) at the rate at which what they ask for, times how long they run, is `LOAD` of
all GPUs. Each runs for as long as it was recorded to, `LONGEST` at most, and is then gone; a pod that fits nowhere when
it comes is lost. The cluster begins empty; after `LONGEST` nothing is left of that, and what follows is measured.

    python -m bench.placement.departures --trace DIR

Writes bench/placement/departures.json, and the table and plots of docs/placement.md.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from statistics import mean
from typing import Final

import msgspec

from bench.document import write_section
from bench.machine import described
from bench.placement import trace
from bench.placement.plot import Axis, plot
from bench.placement.report import DOCUMENT, PLOTS
from bench.placement.run import STRATEGIES, Placed, Site
from bench.placement.trace import Job, Workload
from dra_extender.plaintext import counted

RESULTS: Final = Path(__file__).with_name("departures.json")
FIRST_SEED: Final = 42
LOAD: Final = 1.0
LONGEST: Final = 7_200.0
"""Seconds."""
END: Final = 14_400.0
STEP: Final = 600.0
"""Seconds over which a point of a plot is a mean."""
PART: Final = 0.25
"""Of the nodes of a trace."""
LARGE: Final = 8
"""GPUs of a pod whose losses are counted by themselves."""


class Stay(msgspec.Struct, frozen=True):
    """One run. `shares`: mean per cent of all GPUs allocated, by the minute at which the step begins. Of the pods that
    came once the cluster was warm: how many came, and were lost, with what they asked for in milli GPUs.
    """

    workload: str
    policy: str
    seed: int
    shares: dict[int, float]
    offered: float
    came: int
    lost: int
    asked: int
    missed: int
    large: int
    large_lost: int

    @property
    def share(self) -> float:
        """The mean once the cluster was warm."""
        return mean(share for minute, share in self.shares.items() if minute * 60 >= LONGEST)


def arrivals(workload: Workload, random: Random) -> Iterator[tuple[float, Job, float]]:
    """When a pod comes, what it is, and how long it stays."""
    pods = [(job, min(seconds, LONGEST)) for job, seconds in zip(workload.jobs, workload.seconds, strict=True)]
    each = mean(job.demand * seconds for job, seconds in pods)
    rate = LOAD * workload.capacity / each
    now = random.expovariate(rate)
    while now < END:
        job, seconds = random.choice(pods)
        yield now, job, seconds
        now += random.expovariate(rate)


class Meter:
    """What is allocated, over time."""

    def __init__(self, capacity: int) -> None:
        self.allocated = 0
        self._capacity = capacity
        self._now = 0.0
        self._sums: dict[int, float] = {}

    def until(self, now: float) -> None:
        """Nothing changed up to this time."""
        while self._now < now:
            step = int(self._now // STEP)
            to = min(now, (step + 1) * STEP)
            self._sums[step] = self._sums.get(step, 0.0) + self.allocated * (to - self._now)
            self._now = to

    @property
    def shares(self) -> dict[int, float]:
        return {
            round(step * STEP / 60): round(100 * total / STEP / self._capacity, 3) for step, total in self._sums.items()
        }


async def run(workload: Workload, policy: str, seed: int) -> Stay:
    """One run from empty to the end."""
    random = Random(seed)
    coming = list(arrivals(workload, random))
    site, meter = Site(workload, policy, random), Meter(workload.capacity)
    leaving: list[tuple[float, int, Placed]] = []
    number = count()
    totals = dict.fromkeys(("came", "lost", "asked", "missed", "large", "large_lost"), 0)
    offered = 0.0

    def leave(until: float) -> None:
        while leaving and leaving[0][0] <= until:
            at, _, placed = heapq.heappop(leaving)
            meter.until(at)
            meter.allocated -= placed.job.demand
            site.end(placed)

    for now, job, seconds in coming:
        leave(now)
        meter.until(now)
        placed = await site.place(job)
        if placed is not None:
            meter.allocated += job.demand
            heapq.heappush(leaving, (now + seconds, next(number), placed))
        if now >= LONGEST:
            lost, is_large = placed is None, job.gpus >= LARGE
            offered += job.demand * seconds
            for name, amount in (
                ("came", 1), ("asked", job.demand), ("large", is_large),
                ("lost", lost), ("missed", lost * job.demand), ("large_lost", lost and is_large),
            ):  # fmt: skip
                totals[name] += amount
    leave(END)
    meter.until(END)
    part = 100 * offered / (END - LONGEST) / workload.capacity
    return Stay(workload.name, policy, seed, meter.shares, round(part, 2), **totals)


# --- report -----------------------------------------------------------------------------------------------------------


def grouped(stays: Sequence[Stay]) -> Mapping[str, Mapping[str, Sequence[Stay]]]:
    """By workload and policy."""
    found: dict[str, dict[str, list[Stay]]] = {}
    for stay in stays:
        found.setdefault(stay.workload, {}).setdefault(stay.policy, []).append(stay)
    return found


def table(stays: Sequence[Stay]) -> str:
    """Means over seeds."""
    lines = [
        "| workload | policy | asked for | allocated | GPUs lost | pods lost | pods with 8 GPUs lost | seeds |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for workload, policies in grouped(stays).items():
        for policy, found in policies.items():
            large = sum(stay.large for stay in found)
            cells = [
                f"{mean(stay.offered for stay in found):.1f} %",
                f"{mean(stay.share for stay in found):.2f} %",
                f"{100 * sum(stay.missed for stay in found) / sum(stay.asked for stay in found):.2f} %",
                f"{100 * sum(stay.lost for stay in found) / sum(stay.came for stay in found):.2f} %",
                f"{100 * sum(stay.large_lost for stay in found) / large:.1f} %" if large else "",
                str(len(found)),
            ]
            lines.append(f"| {workload} | {policy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(stays: Sequence[Stay]) -> None:
    """The section of the document, and its plots."""
    lines = [table(stays), ""]
    for workload, policies in grouped(stays).items():
        curves = {
            policy: {minute: mean(stay.shares[minute] for stay in found) for minute in found[0].shares}
            for policy, found in policies.items()
        }
        seeds = counted(max(map(len, policies.values())), "seed")
        file = PLOTS / f"{workload.replace(' ', '-')}-departures.svg"
        across = Axis("minutes", 0, int(END / 60), 30)
        file.write_text(plot(f"{workload}, pods come and go, {seeds}", curves, across, least=60))
        lines.append(f"![{workload}, pods come and go](placement/{file.name})")
    write_section("departures", "\n".join([*lines, "", f"Measured on {described()}."]), DOCUMENT)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement.departures")
    parser.add_argument("--trace", type=Path, help="folder with openb_*.csv; without it the workload is made up")
    parser.add_argument("--lists", nargs="*", default=["default"], help="pod lists of the trace, with run times")
    parser.add_argument("--policies", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the files alone")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    workloads = [trace.sampled(trace.read(options.trace, name), PART) for name in options.lists if options.trace]
    stays: list[Stay] = []
    for workload in workloads or [trace.made_up()]:
        if not workload.seconds:
            print(f"{workload.name}: no run times were recorded, left out")
            continue
        for policy in options.policies:
            for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
                stays.append(found := asyncio.run(run(workload, policy, seed)))
                print(f"{workload.name}, {policy}, seed {seed}: {found.share:.2f} %, lost {found.lost}", flush=True)
                if not options.dry_run:
                    RESULTS.write_bytes(msgspec.json.encode(stays) + b"\n")
    print(table(stays))
    if not options.dry_run:
        write(stays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
