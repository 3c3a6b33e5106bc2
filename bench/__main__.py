"""All benchmarks of one process: selectors, allocation, filter and memory, placement.

Writes bench/results.json and the sections of docs/performance.md. `--only NAME` runs one of them. Exit status 1 when a
target is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench import allocation, filter, growth, selectors
from bench.document import write_section
from bench.machine import described
from bench.placement import cost

RESULTS = Path(__file__).with_name("results.json")
SELECTOR_TARGET = 15
"""Microseconds, median over the selectors."""
HARD_TARGET = 50.0
"""Milliseconds, for every hard problem."""

Bench = tuple[str, Callable[[], dict[str, Any]], Callable[[dict[str, Any]], str]]

BENCHES: dict[str, Bench] = {
    "selectors": ("## Device selectors\n\nOne evaluation on one device.", selectors.run, selectors.markdown),
    "allocation": ("## Allocation on one node", allocation.run, allocation.markdown),
    "filter": ("## Filter on all nodes, and memory", filter.run, filter.markdown),
    "growth": ("## How cost grows", growth.run, growth.markdown),
    "placement": ("## Placement policies", cost.run, cost.markdown),
}


def missed(results: dict[str, Any]) -> list[str]:
    """The targets that are missed."""
    found: list[str] = []
    if "selectors" in results and results["selectors"]["median_micros"] > SELECTOR_TARGET:
        found.append(f"selectors: median {results['selectors']['median_micros']:.2f} µs, target {SELECTOR_TARGET}")
    found += [
        f"allocation: {row['name']} {row['decide_ms']:.1f} ms, target {HARD_TARGET}"
        for row in results.get("allocation", {}).get("hard", ())
        if row["decide_ms"] > HARD_TARGET
    ]
    found += cost.missed(results["placement"]) if "placement" in results else []
    found += growth.missed(results["growth"]) if "growth" in results else []
    return found + (filter.missed(results["filter"]) if "filter" in results else [])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", choices=BENCHES, help="run one benchmark")
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the files alone")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, (title, run, markdown) in BENCHES.items():
        if options.only in (None, name):
            results[name] = run()
            text = f"{title}\n\n{markdown(results[name])}\n\nMeasured on {described()}, processor time."
            print(text, end="\n\n")
            if not options.dry_run:
                write_section(name, text)
    if not options.dry_run and options.only is None:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode({"machine": described(), **results}), indent=1))
    problems = missed(results)
    print("\n".join(["Targets missed:", *problems]) if problems else "All targets met.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
