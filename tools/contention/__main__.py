"""`make contention`: two active replicas and an in-tree scheduler fight over 16 devices with 2,000 short pods.

Prints what happened and ends with the number of violations; the exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from dra_extender.service import logs
from tools.contention.contest import DEVICES, NODES, Rules, compete


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.contention", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pods", type=int, default=2_000, help="how many (default: %(default)s)")
    parser.add_argument(
        "--waiting", type=int, default=200, help="at most so many wait at a time (default: %(default)s)"
    )
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for all (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write logs and data there and leave them")
    options = parser.parse_args()
    logs.configure("error")
    console = Console(width=None if sys.stdout.isatty() else 160)
    rules = Rules(options.pods, options.waiting, options.patience)
    with tempfile.TemporaryDirectory(prefix="contention-") as made, console.status("starting") as status:
        outcome = compete(
            options.keep or Path(made),
            rules,
            lambda ran: status.update(f"{ran:,} of {rules.pods:,} pods have run"),
        )
    console.print(
        f"{rules.pods:,} pods, {NODES * DEVICES} devices on {NODES} nodes, {outcome.seconds:.0f} s, "
        f"{rules.pods / outcome.seconds:.1f} pods/s"
    )
    for table in (outcome.schedulers(), outcome.writers(), outcome.conflicts(), outcome.refusals()):
        console.print(table)
    console.print(f"{outcome.events:,} claims have an event that tells of a device held twice")
    for problem in outcome.problems()[:50]:
        console.print(problem, markup=False, soft_wrap=True)
    console.print(outcome.verdict())
    return 1 if outcome.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
