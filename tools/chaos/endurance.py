"""`make chaos`: chaotic runs from fresh seeds for some time, and a table of what happened in them.

Every run is its seed: a violation ends with the command that plays it again, and the fewest steps that show it.
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence

import structlog
from rich.console import Console
from rich.table import Table

from tools.chaos.chaos import Chaos, Violated, run


class Tally:
    """What happened in all runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.virtual = 0.0
        self.steps: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def add(self, chaos: Chaos) -> None:
        self.runs += 1
        self.virtual += chaos.seconds
        self.steps += chaos.counts
        self.commits += Counter(operation for operation, _ in chaos.world.api.log)
        self.faults += chaos.mishaps.counts + chaos.hardware.counts + chaos.tenants.counts
        self.faults["run with two replicas"] += len(chaos.services) > 1
        for service in chaos.world.services:
            self.faults += service.client.hit + service.watch.hit
            self.answers += Counter({" ".join(what): number for what, number in service.counts.items()})

    def table(self) -> Table:
        table = Table(title="chaos", title_justify="left")
        table.add_column("what")
        table.add_column("kind")
        table.add_column("number", justify="right")
        for what in ("steps", "faults", "commits", "answers"):
            counts: Counter[str] = getattr(self, what)
            table.add_row(what, "", f"{counts.total():,}")
            for kind, number in sorted(counts.items(), key=lambda item: -item[1]):
                table.add_row("", kind, f"{number:,}")
        return table


def shrink(seed: int, steps: int) -> int:
    """The fewest steps of this run, up to `steps`, after which something is wrong."""
    for fewer in range(1, steps):
        try:
            run(seed, fewer)
        except Violated:
            return fewer
    return steps


def play_again(console: Console, seed: int, steps: int) -> int:
    """One run with what its services have logged. The trace is the same each time, or the run does not replay."""
    wrong: list[str] = []
    try:
        chaos = run(seed, steps)
    except Violated as violated:
        chaos, wrong = violated.chaos, violated.wrong
    for line in [*chaos.told, *(f"seed {seed}: {line}" for line in wrong), f"trace {chaos.trace}"]:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"violations: {len(wrong)}")
    return int(bool(wrong))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=80, help="steps of one run (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="play this one run again")
    options = parser.parse_args(arguments)
    console, tally = Console(), Tally()
    if options.seed is not None:
        return play_again(console, options.seed, options.steps)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    started = now = told = time.monotonic()
    first = random.SystemRandom().randrange(10**9)
    while now - started < options.seconds:
        seed = first + tally.runs
        try:
            tally.add(run(seed, options.steps))
        except Violated as violated:
            tally.add(violated.chaos)
            console.print(tally.table())
            for line in violated.wrong:
                console.print(f"seed {seed}: {line}", markup=False, soft_wrap=True)
            again = f"python -m tools.chaos.endurance --seed {seed} --steps"
            fewest = shrink(seed, options.steps)
            console.print(f"play it again: {again} {options.steps}, or with fewest steps: {fewest}", soft_wrap=True)
            console.print(f"violations: {len(violated.wrong)}")
            return 1
        now = time.monotonic()
        if now - told >= 30:
            told = now
            console.print(f"{now - started:.0f} s: {tally.runs} runs, {tally.steps.total():,} steps")
    console.print(tally.table())
    console.print(f"{tally.runs} runs, {tally.virtual / 3600:.1f} hours of virtual time in {now - started:.0f} s")
    console.print("violations: 0")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
