"""What one node costs: everyday decisions by family, and search problems that are expensive for naive backtracking.

`decide` is everything from decoded objects to the answer, as offline simulation does it. `search` is the part that
remains in the service, which keeps nodes prepared. The reference is Kubernetes' allocator on the same problem (time by
its own clock, on another machine): compare orders of magnitude, not digits.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import msgspec

from bench.timing import timed
from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.requests import prepare
from dra_extender.allocation.scenario import Scenario, decide
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.usage import holdings_of

VECTORS = Path(__file__).parents[1] / "tests" / "conformance"
RUNS = 5


SHOWN: Final = 6
"""Rows of each kind in the document."""


class HardRow(msgspec.Struct, frozen=True):
    """Milliseconds. `reference_ms` is 0 where the reference gave up after ten seconds."""

    name: str
    kind: str
    steps: int
    decide_ms: float
    search_ms: float
    reference_ms: float
    reference_steps: int


class EverydayRow(msgspec.Struct, frozen=True):
    """Milliseconds over all decisions of a family."""

    family: str
    decisions: int
    decide_median_ms: float
    decide_p95_ms: float
    search_median_ms: float
    search_p95_ms: float


def vectors(name: str) -> Iterator[dict[str, Any]]:
    """The scenarios of one file."""
    with gzip.open(VECTORS / f"{name}.jsonl.gz") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def costs(scenario: Scenario, runs: int) -> tuple[float, float, Plan | Unfit | Failure]:
    """(decide, search) in milliseconds, and the answer."""
    allocator = Allocator(share_ids=lambda: "share")
    answer = decide(scenario, allocator)
    whole = timed(lambda: decide(scenario, allocator), runs=runs).median
    prepared = prepare(scenario.claims, scenario.classes, scenario.features)
    if isinstance(prepared, Failure):
        return whole, whole, answer
    view = node_view(scenario.node, scenario.slices, scenario.rules, scenario.features)
    holdings = NodeHoldings(view, holdings_of(scenario.allocated, scenario.features))
    allocator.allocate(prepared, view, holdings)
    return whole, timed(lambda: allocator.allocate(prepared, view, holdings), runs=runs).median, answer


def hard_rows() -> list[HardRow]:
    found: list[HardRow] = []
    for case in vectors("hard"):
        whole, search, answer = costs(Scenario(case), RUNS)
        kind = {Plan: "allocated", Unfit: "unschedulable", Failure: "error"}[type(answer)]
        gave_up = case.get("reference_timed_out", False)
        reference = 0.0 if gave_up else case["reference_micros"] / 1000
        found.append(HardRow(case["name"], kind, answer.steps, whole, search, reference, case["reference_steps"]))
    return found


def everyday_rows() -> list[EverydayRow]:
    families: dict[str, list[tuple[float, float]]] = {}
    for case in vectors("allocation"):
        whole, search, _ = costs(Scenario(case), 1)
        families.setdefault(case["name"].rsplit("-", 1)[0], []).append((whole, search))
    families["all"] = [cost for costs in families.values() for cost in costs]
    rows: list[EverydayRow] = []
    for family, measured in sorted(families.items()):
        wholes, searches = zip(*measured, strict=True)
        numbers = (median(wholes), quantiles(wholes, n=20)[-1], median(searches), quantiles(searches, n=20)[-1])
        rows.append(EverydayRow(family, len(measured), *(round(number, 4) for number in numbers)))
    return rows


def run() -> dict[str, Any]:
    return {
        "hard": [msgspec.to_builtins(row) for row in hard_rows()],
        "everyday": [msgspec.to_builtins(row) for row in everyday_rows()],
    }


def markdown(result: dict[str, Any]) -> str:
    """The slowest families and problems; results.json has every row."""
    everyday = sorted(result["everyday"], key=lambda row: row["decide_median_ms"], reverse=True)
    hard = sorted(result["hard"], key=lambda row: row["decide_ms"], reverse=True)
    given_up = sum(not row["reference_ms"] for row in hard)
    lines = [
        f"Everyday decisions, milliseconds per node: all, and the {SHOWN} slowest of {len(everyday) - 1} families:",
        "",
        "| family | decisions | decide, median | p95 | search alone, median | p95 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['family']} | {row['decisions']} | {row['decide_median_ms']:.3f} | {row['decide_p95_ms']:.3f} "
        f"| {row['search_median_ms']:.3f} | {row['search_p95_ms']:.3f} |"
        for row in [row for row in everyday if row["family"] == "all"]
        + [row for row in everyday if row["family"] != "all"][:SHOWN]
    ]
    lines += [
        "",
        f"The {SHOWN} slowest of {len(hard)} hard problems, milliseconds (target: under 50 to decide). The reference",
        f"gives up after 10 s on {given_up} of them. `bench/results.json` has all.",
        "",
        "| problem | answer | steps | decide | search alone | reference | its steps |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in hard[:SHOWN]:
        reference = f"{row['reference_ms']:.2f}" if row["reference_ms"] else "gave up after 10 s"
        lines.append(
            f"| {row['name'].removeprefix('hard-')} | {row['kind']} | {row['steps']} | {row['decide_ms']:.2f} "
            f"| {row['search_ms']:.2f} | {reference} | {row['reference_steps']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(run()))
