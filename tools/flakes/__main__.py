"""Tests again and again on a machine that is busy, each unit run in an order of its own.

    make flakes FLAKES_ARGS="--unit 5 --e2e 3"

Nothing is retried: every failure of every run counts, and the exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.components import NotBuiltError, assets
from tools.flakes.hog import hog
from tools.flakes.outcome import Run, read, summary

ROOT = Path(__file__).parents[2]
UNIT = (
    "-m",
    "not slow and not e2e and not image and not node",
    "-n",
    "auto",
    "--dist",
    "worksteal",
    "-p",
    "tools.flakes.order",
)
E2E = ("tests/e2e", "tests/contract", "-m", "e2e")


def main() -> int:
    options = _options()
    cores = os.cpu_count() or 1
    missing = _missing() if options.e2e else ""
    runs: dict[str, Sequence[Sequence[str]]] = {"unit": _unit(options), "e2e": [] if missing else [E2E] * options.e2e}
    with ExitStack() as stack:
        if options.hog:
            stack.enter_context(hog(cores))
            _say(f"{cores} processes that never rest share the machine with the tests")
        outcomes = {kind: _repeat(kind, wanted) for kind, wanted in runs.items() if wanted}
    for kind, done in outcomes.items():
        _say(f"{kind}: " + "\n".join(summary(done)))
    if missing:
        _say(f"e2e: left out, because there is no control plane: {missing}")
    return 1 if any(run.failures for done in outcomes.values() for run in done) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.flakes", description="Run the tests many times.")
    add = parser.add_argument
    add("--unit", type=int, default=5, help="how often the quick tests run (default: 5)")
    add("--slow", action="store_true", help="with them, the slow tests that need only Python")
    add("--e2e", type=int, default=3, help="how often the tests on a real control plane run (default: 3)")
    add(
        "--order", type=int, default=random.randrange(1, 10**6), help="seed of the order of tests in the first unit run"
    )
    add("--no-hog", dest="hog", action="store_false", help="leave the machine to the tests")
    return parser.parse_args()


def _missing() -> str:
    """What is missing for the end-to-end tests."""
    try:
        assets()
    except NotBuiltError as problem:
        return str(problem)
    return ""


def _repeat(kind: str, runs: Sequence[Sequence[str]]) -> list[Run]:
    """One run after another, reported as they end."""
    done: list[Run] = []
    for number, arguments in enumerate(runs, 1):
        _say(f"{kind} run {number} of {len(runs)}")
        started = time.monotonic()
        done.append(_run(arguments))
        _say(f"after {time.monotonic() - started:.0f} s: " + "\n".join(summary(done[-1:])))
    return done


def _unit(options: argparse.Namespace) -> list[Sequence[str]]:
    which = ("-m", "not e2e and not image and not node") if options.slow else ()
    return [(*UNIT, *which, f"--order={options.order + number}") for number in range(options.unit)]


def _run(arguments: Sequence[str]) -> Run:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "tools.flakes.live",
            f"--junit-xml={report}",
            *arguments,
        ]
        print("  " + " ".join(arguments), flush=True)
        return read(report, subprocess.run(command, cwd=ROOT, check=False).returncode)


def _say(text: str) -> None:
    print(f"\n--- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
