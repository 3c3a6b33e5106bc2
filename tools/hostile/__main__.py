"""`make hostile`: feeds hostile inputs to a running service, one after the other, during a stream of ordinary pods.

Prints a row for each family of inputs and ends with `stalled: 0, lost: 0`. The exit status is 1 when the event loop of
the service stalled, an ordinary pod was not bound, or memory was not given back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dra_extender.limits import FRAMES
from dra_extender.service import logs
from tools.hostile import ground
from tools.hostile.catalogue import EACH, catalogue
from tools.hostile.ordeal import Ordeal, Rules
from tools.hostile.report import Report
from tools.hostile.things import Thing


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.hostile", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of what is generated")
    parser.add_argument("--only", action="append", default=[], metavar="FAMILY", help="these families, or things")
    parser.add_argument("--seconds", type=float, default=6.0, help="that a pod gets to be told something (%(default)s)")
    parser.add_argument("--quiet", type=float, default=30.0, help="seconds without anything hostile (%(default)s)")
    parser.add_argument("--hang", type=float, default=30.0, help="seconds after which a service is replaced")
    parser.add_argument("--memory", type=int, default=6144, help="MiB of addresses for the service (%(default)s)")
    parser.add_argument("--each", type=int, default=EACH, help="generated selectors of each family (%(default)s)")
    parser.add_argument("--list", action="store_true", help="show what would be fed, and exit")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write logs there and leave them")
    real = bool(os.environ.get("E2E"))
    parser.add_argument("--real", action="store_true", default=real, help="on a real control plane (also by E2E=1)")
    return parser.parse_args(given)


def chosen(options: argparse.Namespace) -> list[Thing]:
    """Those of the seed that were asked for."""
    things = catalogue(options.seed, each=options.each)
    wanted = set(options.only)
    return [thing for thing in things if not wanted or wanted & {thing.family, thing.name}]


async def run(options: argparse.Namespace, directory: Path, console: Console) -> int:
    """The exit status."""
    place = ground.real if options.real else ground.embedded
    rules = Rules(options.quiet, options.seconds, options.hang)
    started = time.monotonic()
    console.print(f"seed {options.seed}")
    async with place(directory, memory=options.memory * 2**20) as there:
        ordeal = Ordeal(there, rules, lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
        await ordeal.run(chosen(options))
    report = Report(ordeal)
    console.print(report.table())
    console.print(report.summary() + f"; {time.monotonic() - started:.0f} s", highlight=False, soft_wrap=True)
    problems = list(report.problems())
    for line in problems:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(report.verdict(), highlight=False)
    return 1 if problems else 0


def main() -> int:
    sys.setrecursionlimit(FRAMES)
    logs.configure("error")
    for number in (signal.SIGINT, signal.SIGTERM):  # both end the same way, with all that was started
        signal.signal(number, signal.default_int_handler)
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 200)
    if options.list:
        for thing in chosen(options):
            console.print(f"{thing.family}: {thing.name}", markup=False, highlight=False)
        return 0
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        return asyncio.run(run(options, options.keep, console))
    with tempfile.TemporaryDirectory(prefix="hostile-") as made:
        return asyncio.run(run(options, Path(made), console))


if __name__ == "__main__":
    sys.exit(main())
