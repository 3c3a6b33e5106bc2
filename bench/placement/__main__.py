"""Placement quality: pods keep coming until they have asked for more GPUs than there are; how many get allocated? And
how many gangs get one clique to themselves?

Decisions go through the service's own code: inventory, ledger, filter, prioritize and the allocation. What
kube-scheduler does around them is a small model (`kubescheduler`). Writes bench/placement/results.json and gangs.json,
and the tables and plots of docs/placement.md. Exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from bench.machine import described
from bench.placement import gangs, trace
from bench.placement.report import missed, table, write
from bench.placement.run import STRATEGIES, Outcome, run

RESULTS = Path(__file__).with_name("results.json")
FIRST_SEED = 42

MADE_UP: Mapping[str, Callable[[], trace.Workload]] = {
    "made up": trace.made_up,
    "partitions": trace.partitions,
}
"""Workloads that need no trace."""
GANGS: Final = "gangs"
"""The measurement of gangs, where a workload is named."""

Case = tuple[Path | None, str, str, int, float, bool]
"""Folder of the trace, workload, policy, seed, arrivals, whether pods without GPUs are placed by the extender."""


def measure(case: Case) -> Outcome:
    """One run, in a process of its own."""
    folder, name, policy, seed, arrivals, all_pods = case
    workload = MADE_UP[name]() if name in MADE_UP else trace.read(folder or Path(), name)
    return asyncio.run(run(workload, policy, seed, arrivals, all_pods=all_pods))


def cases(options: argparse.Namespace) -> Iterator[Case]:
    names = options.lists or [*(trace.names(options.trace) if options.trace is not None else ()), *MADE_UP]
    for name in names:
        if name == GANGS:
            continue
        for policy in options.policies:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                yield options.trace, name, policy, seed, options.arrivals, not options.kube_places_the_rest


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trace", type=Path, help="folder with openb_*.csv; without it the workload is made up")
    parser.add_argument(
        "--lists",
        nargs="*",
        help="pod lists of the trace, workloads that are made up, or gangs; all, when none is named",
    )
    parser.add_argument("--policies", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--arrivals", type=float, default=1.3, help="GPUs asked for, as a multiple of those there are")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--add", action="store_true", help="keep the earlier results of other runs")
    parser.add_argument("--kube-places-the-rest", action="store_true", help="pods without GPUs go where the model says")
    parser.add_argument("--report", action="store_true", help="measure nothing; write down the results that are there")
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the files alone")
    return parser.parse_args()


def measured_gangs(options: argparse.Namespace, pool: ProcessPoolExecutor) -> list[str]:
    """The goals missed by gangs."""
    if options.report:
        found = msgspec.json.decode(gangs.RESULTS.read_bytes(), type=list[gangs.Played])
    else:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        found = list(pool.map(gangs.measure, gangs.cases(seeds)))
    print(gangs.table(found))
    if not options.dry_run:
        gangs.RESULTS.write_bytes(msgspec.json.encode(found) + b"\n")
        gangs.write(found, described())
    return gangs.missed(found)


def measured(options: argparse.Namespace, pool: ProcessPoolExecutor) -> list[str]:
    """The goals missed by workloads."""
    outcomes: dict[tuple[str, str, int], Outcome] = {}
    if (options.add or options.report) and RESULTS.exists():
        for known in msgspec.json.decode(RESULTS.read_bytes(), type=list[Outcome]):
            outcomes[known.workload, known.policy, known.seed] = known
    for outcome in pool.map(measure, () if options.report else cases(options)):
        outcomes[outcome.workload, outcome.policy, outcome.seed] = outcome
        print(
            f"{outcome.workload}, {outcome.policy}, seed {outcome.seed}: "
            f"{outcome.shares[max(outcome.shares)]:.2f} % at {max(outcome.shares)} %, {outcome.seconds} s",
            flush=True,
        )
        if not options.dry_run:
            RESULTS.write_bytes(msgspec.json.encode(list(outcomes.values())) + b"\n")
    order = list(STRATEGIES)
    found = sorted(outcomes.values(), key=lambda item: (item.workload, order.index(item.policy), item.seed))
    print(table(found))
    if not options.dry_run:
        RESULTS.write_bytes(msgspec.json.encode(found) + b"\n")
        write(found, described())
    return missed(found)


def main() -> int:
    options = parsed()
    problems: list[str] = []
    with ProcessPoolExecutor(options.processes) as pool:
        if options.lists != [GANGS]:
            problems += measured(options, pool)
        if not options.lists or GANGS in options.lists:
            problems += measured_gangs(options, pool)
    print("\n".join(["Goals missed:", *problems]) if problems else "All goals met.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
