"""What a run comes to: a row for each family, what stalled, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rich.table import Table

from tools.hostile import eyes
from tools.hostile.observer import Look
from tools.hostile.ordeal import Family, Ordeal, Trial

STALL: Final = 0.1
"""Seconds that the loop may stall beyond the longest stall of the quiet time."""
GROWTH: Final = 64 * 2**20
"""Bytes that the service may keep when everything hostile is deleted."""
TOLD: Final = 100
"""Characters of a pod's reason that the table shows."""
_MIB: Final = 2**20


class Report:
    """Reads a finished run."""

    def __init__(self, ordeal: Ordeal) -> None:
        self._ordeal = ordeal
        quiet = eyes.longest(ordeal.quiet.looks)
        self.limit = STALL + (quiet.own if quiet else 0.0)
        """Seconds beyond which the loop has stalled."""

    def stalled(self) -> list[Trial]:
        """The trials in which the service stalled, hung or ended."""
        return [trial for family in self._ordeal.families for trial in family.trials if self._stalls(trial)]

    def _stalls(self, trial: Trial) -> bool:
        found = eyes.longest(trial.looks)
        return bool(trial.killed) or (found is not None and found.own > self.limit)

    def grown(self) -> list[str]:
        """What has kept memory, with how much of it in MiB."""
        families = [(family.name, family.growth) for family in self._ordeal.families]
        every = [*families, ("all together", self._ordeal.growth)]
        return [f"{name}: {growth / _MIB:+.0f} MiB" for name, growth in every if growth > GROWTH]

    @property
    def fed(self) -> int:
        """How many things the API server let through."""
        return sum(not trial.fed.refused for family in self._ordeal.families for trial in family.trials)

    @property
    def generated(self) -> int:
        trials = (trial for family in self._ordeal.families for trial in family.trials)
        return sum(trial.fed.thing.generated and not trial.fed.refused for trial in trials)

    def problems(self) -> Iterator[str]:
        """One line each; none when all is well."""
        for trial in self.stalled():
            found = eyes.longest(trial.looks)
            late = trial.killed or (_described(found) if found else "")
            yield f"STALLED: {trial.fed.thing.family}: {trial.fed.thing.name}: {late}"
        for trial in (trial for family in self._ordeal.families for trial in family.trials if trial.fed.starved):
            yield f"STARVED: {trial.fed.thing.family}: {trial.fed.thing.name}: a pod of another namespace got no event"
        for name in self._ordeal.stream.lost:
            yield f"LOST: {name} was not bound"
        for line in self.grown():
            yield f"GREW: {line}"
        for line in self._ordeal.wrong:
            yield f"WRONG: {line}"

    def verdict(self) -> str:
        """The last line."""
        return f"stalled: {len(self.stalled())}, lost: {len(self._ordeal.stream.lost)}"

    def summary(self) -> str:
        stream, quiet = self._ordeal.stream, self._ordeal.quiet
        longest = eyes.longest(quiet.looks)
        waited = sorted(stream.waited.values())
        middle = waited[len(waited) // 2] if waited else 0.0
        return (
            f"{self.fed} hostile things were let in ({self.generated} generated); {stream.made} ordinary pods, half of "
            f"them bound within {middle:.1f} s, the last after {max(waited, default=0.0):.1f} s; quiet: longest stall "
            f"{longest.own * 1e3 if longest else 0:.0f} ms, filter p99 {eyes.percentile(quiet.looks) * 1e3:.0f} ms, "
            f"{quiet.resident / _MIB:.0f} MiB, in the end {self._ordeal.growth / _MIB:+.0f} MiB"
        )

    def table(self) -> Table:
        made = Table(header_style="bold")
        for column in (
            "family",
            "inputs",
            "refused",
            "stall ms",
            "machine ms",
            "filter p99 ms",
            "growth MiB",
            "workers MiB",
        ):
            made.add_column(column, justify="left" if column == "family" else "right", overflow="fold")
        made.add_column("told", overflow="fold")
        for family in self._ordeal.families:
            made.add_row(*self._row(family))
        return made

    def _row(self, family: Family) -> list[str]:
        looks = [look for trial in family.trials for look in trial.looks]
        refused = sum(bool(trial.fed.refused) for trial in family.trials)
        found = eyes.longest(looks)
        return [
            family.name,
            str(len(family.trials) - refused),
            str(refused),
            "killed" if any(trial.killed for trial in family.trials) else f"{found.own * 1e3:.0f}" if found else "",
            f"{eyes.machine(looks) * 1e3:.0f}",
            f"{eyes.percentile(looks) * 1e3:.0f}",
            f"{family.growth / _MIB:+.0f}",
            f"{family.workers / _MIB:.0f}",
            _most_told(family),
        ]


def _described(stall: Look) -> str:
    """How long, who saw it, and what the loop did, as far as that is known."""
    return f"{stall.own:.2f} s ({stall.what})" + (f": {stall.where}" if stall.where else "")


def _most_told(family: Family) -> str:
    """The most frequent reason of the family's pods; of refused pods, if any."""
    texts = Counter(text for trial in family.trials for text in trial.fed.told)
    refusals = {text: number for text, number in texts.items() if not text.startswith("bound to ")}
    text, number = max((refusals or texts or {"": 0}).items(), key=lambda item: item[1])
    return f"{number} × {text[:TOLD]}" if number > 1 else text[:TOLD]
