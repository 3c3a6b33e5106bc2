"""What each proof saves: steps of the search with all proofs, without one of them, and with one alone.

Counts steps, never seconds, so every run gives the same numbers; a test compares the first table with
docs/decisions/search.md, where this command writes them. `--deep STEPS` searches again, with a larger budget, what a
search without one proof leaves undecided.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench.allocation import vectors
from bench.document import write_section
from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.plan import STEP_BUDGET, Unfit, undecided
from dra_extender.allocation.proofs import bounds, demands
from dra_extender.allocation.proofs.bounds import ALL, Proof
from dra_extender.allocation.proofs.packing import Filling, Packing, Reachable
from dra_extender.allocation.scenario import Scenario, decide
from tests.support.allocation.families import DECIDED_BY

SEARCH = Path(__file__).parents[1] / "docs" / "decisions" / "search.md"

CODE: Final[Mapping[Proof, tuple[str, tuple[Any, ...]]]] = {
    Proof.COUNTS: ("demands", (demands.demands,)),
    Proof.LIMIT: ("bounds", (bounds.Bounds._too_large,)),
    Proof.MATCH: (
        "bounds",
        (bounds.Bounds._narrow_claim, bounds.Bounds._consistent, bounds.Bounds._within, bounds._groups, bounds._shape),
    ),
    Proof.DISTINCT: ("bounds", (bounds.Bounds._diverse,)),
    Proof.HALL: ("demands", (demands.assignable, demands._Assignment)),
    Proof.BUDGETS: ("bounds", (bounds.CounterSum, bounds.CounterBudgets)),
    Proof.SHARES: ("packing", (Packing._shares_fit, Packing._left, Packing._least, Filling, Reachable)),
    Proof.GROUPS: (
        "packing",
        (Packing._groups_fit, Packing._set_fits, Packing._common_table, Packing._binding, Filling, Reachable),
    ),
}
"""The module, and what of it: its lines are those of the proof."""


class Count(NamedTuple):
    """The work of one search, and whether it ended with an answer."""

    steps: int
    decided: bool


Counts = Mapping[str, Count]
"""By name of the vector."""


def count(scenario: Scenario, proofs: Collection[Proof], budget: int = STEP_BUDGET) -> Count:
    """The work for one scenario when the search may use these proofs."""
    decision = decide(scenario, Allocator(share_ids=str, step_budget=budget, proofs=proofs))
    return Count(decision.steps, not (isinstance(decision, Unfit) and decision.reason == undecided(budget)))


def counts(scenarios: Iterable[Scenario], proofs: Collection[Proof], budget: int = STEP_BUDGET) -> Counts:
    """The work for many."""
    return {scenario.name.removeprefix("hard-"): count(scenario, proofs, budget) for scenario in scenarios}


def load(name: str) -> list[Scenario]:
    """The scenarios of one file of vectors."""
    return [Scenario(case) for case in vectors(name)]


# --- tables -----------------------------------------------------------------------------------------------------------


def hard_table() -> str:
    """The hard vectors without each of the proofs, and the family that was made for it."""
    hard = load("hard")
    lines = [
        "| left out | undecided | steps | median | most | undecided without it | steps on its family | without it |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
        baseline(hard),
        *(left_out(hard, proof) for proof in Proof),
        f"| everything | {_summary(counts(hard, ()))} | | | |",
    ]
    return "\n".join(lines)


def baseline(hard: Iterable[Scenario]) -> str:
    """The first row: the hard vectors with all proofs."""
    return f"| nothing | {_summary(counts(hard, ALL))} | | | |"


def left_out(hard: Iterable[Scenario], proof: Proof) -> str:
    """The row of a proof."""
    found = counts(hard, ALL - {proof})
    family = Scenario(DECIDED_BY[proof])
    with_it, without = (_steps(count(family, proofs)) for proofs in (ALL, ALL - {proof}))
    names = ", ".join(_undecided(found)) or "–"
    return f"| {proof.value} | {_summary(found)} | {names} | {with_it} | {without} |"


def code_table() -> str:
    """Where the proofs are, what they are alone, and everyday decisions without them."""
    hard, everyday = load("hard"), load("allocation")
    lines = [
        "| proof | module | lines | hard vectors it leaves undecided alone | everyday: undecided without it | steps |",
        "|---|---|---:|---:|---:|---:|",
        f"| all | | | {len(_undecided(counts(hard, ALL)))} | {_total(counts(everyday, ALL))} |",
    ]
    for proof in Proof:
        module, parts = CODE[proof]
        size = sum(len(inspect.getsourcelines(part)[0]) for part in parts)
        alone = len(_undecided(counts(hard, {proof})))
        without = _total(counts(everyday, ALL - {proof}))
        lines.append(f"| {proof.value} | `{module}` | {size} | {alone} | {without} |")
    lines.append(f"| none | | | {len(_undecided(counts(hard, ())))} | {_total(counts(everyday, ()))} |")
    return "\n".join(lines)


def need_table(budget: int) -> str:
    """The steps of what is undecided when one proof is left out."""
    hard = load("hard")
    lines = ["| left out | steps it would take |", "|---|---|"]
    for proof in Proof:
        proofs = ALL - {proof}
        names = _undecided(counts(hard, proofs))
        found = counts([item for item in hard if item.name.removeprefix("hard-") in names], proofs, budget)
        if found:
            texts = (f"{name} {_steps(work, budget)}" for name, work in found.items())
            lines.append(f"| {proof.value} | {', '.join(texts)} |")
    return "\n".join(lines)


def _undecided(found: Counts) -> list[str]:
    return [name for name, work in found.items() if not work.decided]


def _summary(found: Counts) -> str:
    steps = [work.steps for work in found.values()]
    return f"{len(_undecided(found))} | {sum(steps):,} | {median(steps):,g} | {max(steps):,}"


def _total(found: Counts) -> str:
    return f"{len(_undecided(found))} | {sum(work.steps for work in found.values()):,}"


def _steps(work: Count, budget: int = STEP_BUDGET) -> str:
    return f"{work.steps:,}" if work.decided else f"> {budget:,}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--deep", type=int, metavar="STEPS", help="also search what is undecided with this budget")
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the document alone")
    options = parser.parse_args()
    tables = {"ablation": hard_table, "ablation-code": code_table}
    if options.deep:
        tables["ablation-need"] = lambda: need_table(options.deep)
    for name, table in tables.items():
        text = table()
        print(text, end="\n\n")
        if not options.dry_run:
            write_section(name, text, SEARCH)


if __name__ == "__main__":
    main()
